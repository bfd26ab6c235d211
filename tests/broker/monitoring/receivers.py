"""An OpenTelemetry receiver (OTLP over HTTP), in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.observability.otlp_messages import ExportTraceServiceRequest, MetricsData, attributes

__all__ = ["Receiver", "receiver"]


class Receiver:
    """What was received: (path, headers, body)."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200

    def spans(self) -> list[tuple[str, dict[str, Any]]]:
        """(name, attributes) of all spans."""
        found = []
        for path, _, body in list(self.requests):
            if path == "/v1/traces":
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in of_resource.scope_spans:
                        found += [(span.name, attributes(span.attributes)) for span in scope.spans]
        return found

    def links(self, name: str) -> set[tuple[int, int]]:
        """Trace id and span id of the links of all spans of a name."""
        return {
            (int.from_bytes(link.trace_id), int.from_bytes(link.span_id))
            for path, _, body in list(self.requests)
            if path == "/v1/traces"
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
            if span.name == name
            for link in span.links
        }

    def metrics(self) -> list[tuple[dict[str, Any], list[str]]]:
        """(attributes of the resource, names of the metrics) of all pushes."""
        found = []
        for path, _, body in list(self.requests):
            if path == "/v1/metrics":
                for of_resource in MetricsData.FromString(body).resource_metrics:
                    names = [m.name for scope in of_resource.scope_metrics for m in scope.metrics]
                    found.append((attributes(of_resource.resource.attributes), names))
        return found


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.status == 200:
                found.requests.append((self.path, dict(self.headers), body))
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
