"""Serves the requests of clients that have a quota, and throttles them (KIP-219).

The response goes out at once and has the throttle time. The connection is then muted for that time. Requests
of clients without a quota go back to the dispatcher. While no client has a quota, none come here.

Produce requests are charged when they arrive, because a client may send many before the first response.
Fetches are charged when their response is built. Repeated fetches are not recognised here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from penstock.broker.base.context import Context, MeteredContext
from penstock.broker.base.metering import RequestMeter
from penstock.broker.base.metrics import Metrics
from penstock.broker.request.dispatch import MEDIUM_BYTES, Dispatcher, unsupported_api_versions
from penstock.broker.request.route import Route
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.quotas.clients import ClientLimits, ClientQuotas
from penstock.quotas.entities import Quotas
from penstock.security.principal import Session
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import RequestHeader, decode_request_header
from penstock.wire.slicing import LargeMessage

__all__ = ["MeteredRequests"]

#: the size before each frame
_SIZE_BYTES: Final = 4
_INT32: Final = 4
_MS: Final = 1000


class MeteredRequests:
    """The requests of one dispatcher's clients that have a quota."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        metrics: Metrics,
        quotas: ClientQuotas,
        now_ms: Callable[[], int],
        is_exempt: Callable[[Session], bool] | None = None,
    ) -> None:
        """`is_exempt` returns true for sessions without quotas: those of nodes."""
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._quotas = quotas
        self._now_ms = now_ms
        self._is_exempt = is_exempt

    def enforce(self, quotas: Quotas, generation: object) -> None:
        """Take over the quotas of the cluster."""
        self._quotas.update(quotas, generation)
        self._dispatcher.meter(self.serve if self._quotas.has_any else None)

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        """Serve a frame of any client, while the cluster has quotas."""
        if connection.pending_since is not None:
            # Before authentication the client is unknown.
            return self._dispatcher.serve_plain(connection, frame)
        if self._is_exempt is not None and self._is_exempt(connection.session):
            return self._dispatcher.serve_plain(connection, frame)
        header = decode_request_header(frame)
        user = connection.session.principal.name
        limits = self._quotas.limits(user, header.client_id or "", self._now_ms())
        if limits is None:
            return self._dispatcher.serve_plain(connection, frame)
        return self._serve_limited(connection, frame, header, limits)

    def _serve_limited(
        self, connection: Connection, frame: memoryview, header: RequestHeader, limits: ClientLimits
    ) -> Answer:
        started = perf_counter_ns()
        meter = RequestMeter(limits, self._now_ms)
        route = self._dispatcher.route_of(header)
        if route is None:
            return unsupported_api_versions(header)
        client_id, version = header.client_id, header.api_version
        context = MeteredContext(self._dispatcher, connection, client_id, version, route.stats, meter)
        if header.api_key == PRODUCE.key:
            meter.charge_produce(len(frame) + _SIZE_BYTES)
            if meter.throttle_ms:
                connection.mute(meter.throttle_ms / _MS)
        try:
            request = route.decode(frame, header.body_offset)
        except LargeMessage:
            meter.pause()
            context.is_large = True
            prepare = partial(self._throttle, context, meter)
            return self._dispatcher.large.serve(route, context, header, frame, started, prepare)
        try:
            response = route.handler(context, request)
            if route.is_async:
                meter.pause()
                if len(frame) > MEDIUM_BYTES:
                    response = context.after_turn(response)
                response = context.spawn(response)
        except Exception as e:
            raise self._dispatcher.error_of(context, e) from e
        meter.pause()
        self._dispatcher.held(context, perf_counter_ns() - started)
        written = partial(self._written, route, context, meter, header, started)
        if not route.is_hot:
            return self._maybe_large(route, context, header, started, response, written)
        if not isinstance(response, Deferred):
            return written(response)
        if response.done:
            return written(response.value)
        context.handled_ns = perf_counter_ns()
        response.request = route.stats
        response.convert = written
        return response

    def _maybe_large(
        self,
        route: Route,
        context: Context,
        header: RequestHeader,
        started: int,
        response: Any,
        written: Callable[[Any], Parts | None],
    ) -> Answer:
        """The answer with a response that may be large."""
        large, correlation_id = self._dispatcher.large, header.correlation_id
        if isinstance(response, Deferred):
            return large.later(route, context, correlation_id, response, started, written)
        try:
            return written(response)
        except LargeMessage:
            return large.encode(route, context, correlation_id, response, started)

    def _throttle(self, context: Context, meter: RequestMeter, message: Any) -> int:
        """Charge the time of a request, set the throttle time of its response, and mute its connection."""
        if message is not None:
            # A Produce request with acks=0 gets no response and is not charged for its time.
            meter.charge_time()
        throttle_ms = max(meter.throttle_ms, getattr(message, "throttle_time_ms", 0))
        if hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = throttle_ms
        if throttle_ms:
            self._throttled(context, throttle_ms)
        return throttle_ms

    def _written(
        self,
        route: Route,
        context: Context,
        meter: RequestMeter,
        header: RequestHeader,
        started: int,
        message: Any,
    ) -> Parts | None:
        """The response as it goes out, with the throttle time; mutes the connection for that time."""
        meter.resume()
        try:
            throttle_ms = self._throttle(context, meter, message)
            parts = self._dispatcher.finish_late(route, context, header.correlation_id, started, message)
            if parts is not None and message.__class__ is tuple:
                parts = _with_throttle(parts, throttle_ms, route)
            return parts
        except LargeMessage:
            raise
        except Exception as e:  # noqa: BLE001 - as in `Dispatcher.serve`
            self._dispatcher.failed(context, e)
            return None
        finally:
            meter.pause()

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
