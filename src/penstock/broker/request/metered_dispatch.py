"""Serves the requests of clients that have a quota, and throttles them (KIP-219).

The response goes out at once and has the throttle time. The connection is then muted for that time. Requests
of clients without a quota go to the plain dispatcher. While no client of the cluster has a quota, the plain
dispatcher serves all requests without a check: `enforce` switches between the two.

Produce requests are charged when they arrive, because a client may send many before the first response.
Fetches are charged when their response is built. Repeated fetches are not recognised here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from penstock.broker.base.context import Context, Handler
from penstock.broker.base.metering import MeteredContext, RequestMeter, timed
from penstock.broker.base.metrics import Metrics
from penstock.broker.request.dispatch import Dispatcher, Route, unsupported_api_versions
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.quotas.clients import ClientLimits, ClientQuotas
from penstock.quotas.entities import Quotas
from penstock.wire.api import Api
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import RequestHeader, decode_request_header

__all__ = ["MeteredDispatcher"]

#: the size before each frame
_SIZE_BYTES: Final = 4
_INT32: Final = 4
_MS: Final = 1000


class MeteredDispatcher(Dispatcher):
    """The dispatcher of a broker whose cluster has client quotas."""

    def __init__(
        self,
        plain: Dispatcher,
        handlers: Mapping[Api[Any, Any], Handler],
        metrics: Metrics,
        quotas: ClientQuotas,
        now_ms: Callable[[], int],
    ) -> None:
        """`handlers` are those of `plain`, with those of metered requests in place of some."""
        super().__init__(handlers, {}, metrics, plain.connection_lost, watch=plain.watch)
        self._plain = plain
        self._quotas = quotas
        self._now_ms = now_ms

    def enforce(self, quotas: Quotas, generation: object) -> None:
        """Take over the quotas of the cluster."""
        self._quotas.update(quotas, generation)
        self._plain.serve = self.serve_metered if self._quotas.has_any else self._plain.serve_plain

    def serve_metered(self, connection: Connection, frame: memoryview) -> Answer:
        if connection.pending_since is not None:
            # Before authentication the client is unknown.
            return self._plain.serve_plain(connection, frame)
        header = decode_request_header(frame)
        user = connection.session.principal.name
        limits = self._quotas.limits(user, header.client_id or "", self._now_ms())
        if limits is None:
            return self._plain.serve_plain(connection, frame)
        return self._serve_limited(connection, frame, header, limits)

    def _serve_limited(
        self, connection: Connection, frame: memoryview, header: RequestHeader, limits: ClientLimits
    ) -> Answer:
        started = perf_counter_ns()
        meter = RequestMeter(limits, self._now_ms)
        route = self._routes.get((header.api_key, header.api_version)) or self._find_route(header)
        if route is None:
            return unsupported_api_versions(header)
        request = route.decode(frame, header.body_offset)
        context = MeteredContext(
            self._plain, connection, header.client_id, header.api_version, route.stats, meter
        )
        if header.api_key == PRODUCE.key:
            meter.charge_produce(len(frame) + _SIZE_BYTES)
            if meter.throttle_ms:
                connection.mute(meter.throttle_ms / _MS)
        try:
            response = route.handler(context, request)
            if route.is_async:
                meter.pause()
                response = self._plain.spawn(context, timed(response, meter))
        except Exception as e:
            raise self._bug(context, e) from e
        meter.pause()
        written = partial(self._written, route, context, header, started)
        if not isinstance(response, Deferred):
            return written(response)
        if response.done:
            return written(response.value)
        context.handled_ns = perf_counter_ns()
        response.request = route.stats
        response.convert = written
        return response

    def _written(
        self, route: Route, context: MeteredContext, header: RequestHeader, started: int, message: Any
    ) -> Parts | None:
        """The response as it goes out, with the throttle time; mutes the connection for that time."""
        meter = context.meter
        meter.resume()
        parts: Parts | None = None
        try:
            if message is not None:
                # A Produce request with acks=0 gets no response and is not charged for its time.
                meter.charge_time()
            throttle_ms = max(meter.throttle_ms, getattr(message, "throttle_time_ms", 0))
            if message.__class__ is tuple:
                write, content = message
                parts = _with_throttle(write(header.correlation_id, content), throttle_ms, route)
            elif message is not None:
                if hasattr(message, "throttle_time_ms"):
                    message.throttle_time_ms = throttle_ms
                parts = route.write(header.correlation_id, message)
                if route.codes is not None:
                    route.stats.count_errors(route.codes(message))
        except Exception as e:  # noqa: BLE001 - as in `Dispatcher.serve`
            self.failed(context, e)
            return None
        if throttle_ms:
            self._throttled(context, throttle_ms)
        meter.pause()
        took = perf_counter_ns() - started
        route.observe(took)
        if took >= self._plain.slow_ns:
            self._plain.slow(context, started, took, None, message)
        return parts

    def _throttled(self, context: Context, throttle_ms: int) -> None:
        self._metrics.throttled(context.principal.name, throttle_ms)
        context.connection.mute(throttle_ms / _MS)


def _with_throttle(parts: Parts, throttle_ms: int, route: Route) -> Parts:
    """A Produce response that was built from a skeleton, with its throttle time: the last field."""
    if not throttle_ms:
        return parts
    assert len(parts) == 1 and isinstance(parts[0], bytes), "only Produce responses have a skeleton"
    data = parts[0]
    end = len(data) - (1 if route.is_flexible else 0)
    return (data[: end - _INT32] + throttle_ms.to_bytes(_INT32, "big") + data[end:],)
