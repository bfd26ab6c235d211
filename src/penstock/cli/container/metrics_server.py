"""Serves the API of external metrics to the API server of Kubernetes, over TLS.

Only the API server may ask: it has checked the rights of its client, and shows a certificate of the authority
that it names in `kube-system/extension-apiserver-authentication`. The metrics are those of pages that a
thread reads from the brokers; a page that is too old counts for nothing.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from penstock.cli.container.external_metrics import Measured, answer
from penstock.cli.container.kubernetes import KubernetesApi
from penstock.cli.container.loads import LAG, LOAD, SHARE_LAG, Taken, measure, taken
from penstock.cli.failure import Failure

__all__ = ["Brokers", "Front", "LoadWatch", "front_of", "metrics_server"]

_FRONT: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_HEALTHY: Final = "/healthz"
_TIMEOUT_S: Final = 5.0
_IDLE_S: Final = 30.0
_LARGEST: Final = 64 << 20
#: how many intervals a page counts for
_OLD: Final = 3


class Front(NamedTuple):
    """What the certificate of the API server must have."""

    authority: str
    #: common names of its certificate; every name of the authority, if there is none
    names: tuple[str, ...]


def front_of(api: KubernetesApi) -> Front:
    """What the API server says about itself."""
    found = api.get(_FRONT)
    data = {} if found is None else found.get("data", {})
    authority = data.get("requestheader-client-ca-file", "")
    if not authority:
        raise Failure("the API server of this cluster does not say how it proves itself to other servers")
    return Front(authority, tuple(json.loads(data.get("requestheader-allowed-names", "[]"))))


class Brokers:
    """The metrics pages of brokers, by their ids."""

    def __init__(self, wanted: Callable[[], int], host: str, port: int, token: Path, authority: Path) -> None:
        self._wanted = wanted
        self._host = host
        self._port = port
        self._token = token
        self._authority = authority
        #: why the pages of brokers could not be read the last time
        self._reasons: dict[int, str] = {}

    def pages(self) -> dict[int, Taken]:
        """What the brokers that answer say. One that does not is left out; the reason is printed once."""
        found = {}
        token = self._token.read_text(encoding="ascii").strip()
        context = ssl.create_default_context(cafile=str(self._authority))
        for broker in range(self._wanted()):
            connection = HTTPSConnection(
                self._host.replace("{id}", str(broker)), self._port, timeout=_TIMEOUT_S, context=context
            )
            reason = ""
            try:
                connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
                response = connection.getresponse()
                page = response.read(_LARGEST).decode(errors="replace")
                if response.status == HTTPStatus.OK:
                    found[broker] = taken(page, time.monotonic())
                else:
                    reason = f"HTTP {response.status} {response.reason}"
            except (OSError, HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
            finally:
                connection.close()
            self._report(broker, reason)
        return found

    def _report(self, broker: int, reason: str) -> None:
        """Print why the page of a broker is missing, and that it is there again; not at each reading."""
        if reason == self._reasons.get(broker, ""):
            return
        self._reasons[broker] = reason
        about = f"cannot be read: {reason}" if reason else "are read again"
        print(f"the metrics of broker {broker} {about}", flush=True)


class LoadWatch:
    """The values of all metrics, from the last two pages of each broker."""

    def __init__(self, pages: Callable[[], Mapping[int, Taken]], interval_s: float) -> None:
        self._pages = pages
        self._interval_s = interval_s
        self._last: Mapping[int, Taken] = {}
        self._found: Mapping[str, Sequence[Measured]] = {LOAD: (), LAG: (), SHARE_LAG: ()}
        self._at_s = 0.0
        self._when = datetime.now(UTC)
        self._changes = threading.Lock()

    def sample(self) -> None:
        """Read all pages once."""
        pages = self._pages()
        with self._changes:
            self._found = measure(self._last, pages)
            self._last, self._at_s, self._when = pages, time.monotonic(), datetime.now(UTC)

    def run(self) -> None:
        """Read the pages again and again, without an end."""
        while True:
            try:
                self.sample()
            except (OSError, ValueError, Failure) as error:
                print(f"the metrics of the brokers cannot be read: {error}", flush=True)
            time.sleep(self._interval_s)

    def values(self) -> tuple[Mapping[str, Sequence[Measured]], str]:
        """The values of each metric, none if they are too old, and when they were taken."""
        with self._changes:
            found, at_s, when = self._found, self._at_s, self._when
        if time.monotonic() - at_s > _OLD * self._interval_s:
            found = dict.fromkeys(found, ())
        return found, when.strftime("%Y-%m-%dT%H:%M:%SZ")


def metrics_server(
    port: int, keystore: Path, front: Front, namespace: str, watch: LoadWatch
) -> ThreadingHTTPServer:
    """A server that is not running yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)
    context.load_verify_locations(cadata=front.authority)
    # Probes of kubelet have no certificate: they get /healthz only.
    context.verify_mode = ssl.CERT_OPTIONAL

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _IDLE_S

        def setup(self) -> None:
            # In the thread of the connection: a client that does not shake hands stops no other one.
            self.request.settimeout(_IDLE_S)
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()  # the server knows the socket below it only

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == _HEALTHY:
                self._send(HTTPStatus.OK, {"status": "ok"})
            elif not may_ask(self.request.getpeercert(), front):
                self._send(HTTPStatus.UNAUTHORIZED, {"message": "only the API server of Kubernetes may ask"})
            else:
                found, when = watch.values()
                status, body = answer(parts.path, parts.query, namespace, found, when)
                self._send(status, body)

        def _send(self, status: HTTPStatus, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for requests that were answered."""

    return _Server(("", port), Handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the business of its client."""


def may_ask(certificate: Mapping[str, Any] | None, front: Front) -> bool:
    """Whether the certificate of a client is that of the API server. Its authority was checked before."""
    if not certificate:
        return False
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return not front.names or any(name in front.names for name in names)
