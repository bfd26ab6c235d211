"""Sends spans, and metrics of clients, to an OpenTelemetry receiver (OTLP over HTTP).

Both wait in bounded queues, and leave in batches, from a worker thread. If the receiver does not respond,
they are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from penstock.broker.base.logs import get_logger
from penstock.observability.otlp import encode_spans
from penstock.observability.spans import Span
from penstock.ports import Workers

__all__ = ["OtlpExporter", "parse_headers"]

log = get_logger("otlp")
#: how long items wait for others
INTERVAL_S: Final = 1.0
_SPANS_MAX: Final = 2048
_SPANS_PER_REQUEST: Final = 512
_METRICS_MAX: Final = 256
_TIMEOUT_S: Final = 10.0
#: after an error, items are kept for this long before the next attempt
_PAUSE_S: Final = 5.0

#: sends (url, headers, body); raises OSError. Runs in a worker thread.
Post = Callable[[str, Mapping[str, str], bytes], None]


def parse_headers(text: str) -> dict[str, str]:
    """Headers as NAME=VALUE, comma-separated."""
    pairs = (each.partition("=") for each in text.split(",") if each.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


class OtlpExporter:
    """Exports from `start` to `stop`."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        resource: Mapping[str, str | int],
        workers: Workers,
        counts: tuple[dict[str, int], dict[str, int]],
        post: Post | None = None,
    ) -> None:
        """`counts` are, by signal, what has left and what was dropped."""
        self._endpoint = endpoint.rstrip("/")
        self._headers = {"Content-Type": "application/x-protobuf", **headers}
        self._resource = dict(resource)
        self._workers = workers
        self._post = post or _post
        self._spans: deque[Span] = deque()
        self._metrics: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        self._exported, self._dropped = counts
        for count in counts:
            count.update(spans=0, metrics=0)

    def add_spans(self, spans: Sequence[Span]) -> None:
        for span in spans:
            if len(self._spans) >= _SPANS_MAX:
                self._dropped["spans"] += 1
            else:
                self._spans.append(span)

    def add_metrics(self, request: bytes) -> None:
        """Add a complete ExportMetricsServiceRequest."""
        if len(self._metrics) >= _METRICS_MAX:
            self._dropped["metrics"] += 1
        else:
            self._metrics.append(request)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop, without a last attempt: a receiver that hangs would hold up the shutdown."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_S if self._is_failing else INTERVAL_S)
            await self.flush()

    async def flush(self) -> None:
        """Send the queue until it is empty or an attempt fails."""
        while self._spans:
            batch = [self._spans.popleft() for _ in range(min(len(self._spans), _SPANS_PER_REQUEST))]
            if not await self._send("/v1/traces", encode_spans(self._resource, batch), "spans", len(batch)):
                return
        while self._metrics:
            if not await self._send("/v1/metrics", self._metrics.popleft(), "metrics", 1):
                return

    async def _send(self, path: str, body: bytes, signal: str, count: int) -> bool:
        try:
            await self._workers.in_thread(self._post, self._endpoint + path, self._headers, body)
        except OSError as e:
            self._dropped[signal] += count
            if not self._is_failing:
                log.warning("otlp_export_failed", endpoint=self._endpoint, error=str(e))
            self._is_failing = True
            return False
        self._exported[signal] += count
        if self._is_failing:
            log.info("otlp_export_resumed", endpoint=self._endpoint)
        self._is_failing = False
        return True


def _post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    # Imported here, in the worker thread: only a broker that exports needs an HTTP client.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", parts.path, body, dict(headers))
        response = connection.getresponse()
        response.read(1 << 16)
        if response.status // 100 != 2:
            raise OSError(f"status {response.status}")
    except HTTPException as e:
        raise OSError(repr(e)) from e
    finally:
        connection.close()
