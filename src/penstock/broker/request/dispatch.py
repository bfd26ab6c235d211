"""Routes a frame to its handler, and the handler's response back.

A handler is `handler(context, request)`. It returns the response, a `Deferred` of it, or None if the request
gets no response. A handler off the hot path may be a coroutine. A handler on it may return a writer and its
content (as `response_skeleton` and `replica_fetch.write_response`). Handlers turn expected errors into error
codes. An unexpected error is logged, and closes the connection of the request.

Requests and responses that are large are decoded, handled and encoded in slices (`large_requests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, TypeVar

from penstock.broker.base.context import Context, Handler, LargeContext
from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import UNIT_NS, ApiStats, Metrics
from penstock.broker.base.repeated import Learn, RepeatedRequests
from penstock.broker.request.large_requests import LargeRequests
from penstock.broker.request.request_watch import NEVER_NS, RequestWatch
from penstock.broker.request.route import Route
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.net.client_limit import ClientLimit
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.net.turns import Turns
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from penstock.wire.messages import (
    RequestHeader,
    decode_request_header,
    encode_response,
)
from penstock.wire.slicing import LargeMessage

__all__ = ["MEDIUM_BYTES", "Dispatcher", "unsupported_api_versions"]

T = TypeVar("T")
log = get_logger("requests")
#: the time from which on a request counts for the share of its iteration; shorter ones are too many to count
_MEDIUM_NS: Final = 100_000
#: after a request that takes longer, its connection waits for its turn
_HEAVY_NS: Final = 1_000_000
#: `Context(…)` without the call of a Python function, for what every request brings
_new_context: Final = object.__new__
#: the size of a frame with a few elements; coroutines for larger ones wait for their turn
MEDIUM_BYTES: Final = 512


class Dispatcher:
    """Serves the frames of a broker's connections."""

    def __init__(
        self,
        handlers: Mapping[Api[Any, Any], Handler],
        learn: Mapping[tuple[int, int], Learn],
        metrics: Metrics,
        on_lost: Callable[[Connection], None],
        stats: Callable[[str], ApiStats] | None = None,
        watch: RequestWatch | None = None,
        turns: Turns | None = None,
        record_bytes_max: Callable[[], int] | None = None,
        large_memory: ClientLimit | None = None,
    ) -> None:
        """`learn` has, by API key and version, functions that recognise repeated requests.

        `on_lost` is called with each connection that has ended. `stats` returns the counters of an API by its
        name: those of clients if it is None. `watch` records slow requests. `turns` are those of the large
        requests of a broker. `record_bytes_max` returns the size of the largest batch. `large_memory` bounds
        the large requests of a client.
        """
        self.watch = watch
        self.turns = Turns() if turns is None else turns
        self.large = LargeRequests(self, record_bytes_max, large_memory)
        self._slow_ns = NEVER_NS
        # The same seed gives the same run: in a simulation no request is heavy.
        self._medium_ns = NEVER_NS if self.turns.is_simulated else _MEDIUM_NS
        #: the time from which on a request is looked at: it may be slow, or heavy
        self._long_ns = self._medium_ns
        self._metrics = metrics
        self._stats = stats or metrics.api
        self._on_lost = on_lost
        self._learn = learn
        self._handlers = {api.key: (api, handler) for api, handler in handlers.items()}
        self._routes: dict[tuple[int, int], Route] = {}
        # In order, so that a simulated end of all of them is the same every time.
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: serves the frames of clients that may have a quota; None while no client has one
        self._metering: Callable[[Connection, memoryview], Answer] | None = None
        self._samples_next = False
        #: whether frames go through metering, or the next one is recorded
        self._is_special = False

    @property
    def slow_ns(self) -> int:
        """The time from which on a request may be slow."""
        return self._slow_ns

    @slow_ns.setter
    def slow_ns(self, slow_ns: int) -> None:
        self._slow_ns = slow_ns
        self._long_ns = min(slow_ns, self._medium_ns)

    def disable_turns(self) -> None:
        """Have no connection wait after long requests; for brokers that run under a tracer."""
        self._medium_ns = NEVER_NS
        self._long_ns = self._slow_ns

    @property
    def apis(self) -> Iterable[Api[Any, Any]]:
        """The APIs that have a handler."""
        return [api for api, _ in self._handlers.values()]

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        """Serve a frame.

        Longer than other functions because this is the hot path: a call for each step would cost more.
        """
        if self._is_special:
            return self._serve_special(connection, frame)
        started = perf_counter_ns()
        repeated: RepeatedRequests | None = connection.memo
        route: Route | None
        if repeated is not None and (taken := self._take_repeated(repeated, frame)) is not None:
            correlation_id, response = taken
            context, request = repeated.context, None
            route = self._routes[repeated.route]
        else:
            header = decode_request_header(frame)
            api_key, version, correlation_id, client_id, body_offset = header
            route = self._routes.get((api_key, version))
            if route is None:
                route = self._find_route(header)
                if route is None:
                    return unsupported_api_versions(header)
            # As `Context.__init__`, without the call.
            context = _new_context(Context)
            context.tasks = self
            context.connection = connection
            context.client_id = client_id
            context.version = version
            context.stats = route.stats
            context.denials = None
            try:
                request = route.decode(frame, body_offset)
            except LargeMessage:
                context = LargeContext(self, connection, client_id, version, route.stats)
                return self.large.serve(route, context, header, frame, started)
            try:
                if route.learn is not None:
                    route.learn(context, request, frame, body_offset)
                response = route.handler(context, request)
                if route.is_async:
                    if len(frame) > MEDIUM_BYTES:
                        response = context.after_turn(response)
                    response = self.spawn(context, response)
            except Exception as e:
                raise self.error_of(context, e) from e
        # As in `finish_late`, without a call.
        parts: Parts | None
        if response.__class__ is tuple:
            write, content = response
            parts = write(correlation_id, content)
        elif response is None:
            parts = None
        elif isinstance(response, Deferred):
            return self._later(route, context, correlation_id, response, started)
        else:
            try:
                parts = route.write(correlation_id, response)
            except LargeMessage:
                return self.large.encode(route, context, correlation_id, response, started)
            if route.codes is not None:
                route.stats.count_errors(route.codes(response))
        if context.denials is not None:
            context.denials.end()
        took = perf_counter_ns() - started
        # `Histogram.observe`, without the call.
        latency = route.latency
        latency.total_ns += took
        latency.buckets[(took // UNIT_NS).bit_length()] += 1
        if took >= self._long_ns:
            self._took_long(context, started, took, request, response)
        return parts

    def serve_plain(self, connection: Connection, frame: memoryview) -> Answer:
        """Serve a frame of a client that has no quota, and do not record it."""
        self._is_special = False
        try:
            return self.serve(connection, frame)
        finally:
            self._find_special()

    def finish_late(
        self,
        route: Route,
        context: Context,
        correlation_id: int,
        started: int,
        message: Any,
        parts: Parts | None = None,
    ) -> Parts | None:
        """Encode a response that was waited for, unless `parts` has it; LargeMessage if it needs slices.

        An unexpected error closes the connection of the request.
        """
        if context.denials is not None:
            context.denials.end()
        if message.__class__ is tuple:
            write, content = message
            parts = write(correlation_id, content)
        elif message is not None:
            if parts is None:
                try:
                    parts = route.write(correlation_id, message)
                except LargeMessage:
                    raise
                except Exception as e:  # noqa: BLE001 - as in `serve`
                    self.failed(context, e)
                    return None
            if route.codes is not None:
                route.stats.count_errors(route.codes(message))
        took = perf_counter_ns() - started
        latency = route.latency
        latency.total_ns += took
        latency.buckets[(took // UNIT_NS).bit_length()] += 1
        if took >= self._slow_ns:
            self.slow(context, started, took, None, message)
        return parts

    def _took_long(self, context: Context, started: int, took: int, request: Any, message: Any) -> None:
        """A request was not short: it counts for the share of its iteration."""
        self.held(context, took)
        if took >= self._slow_ns:
            self.slow(context, started, took, request, message)

    def held(self, context: Context, took: int) -> None:
        """A request has held the event loop; after a long one, the connection's next waits for its turn."""
        if took >= self._medium_ns:
            self.turns.use(took / 1e9)
            if took >= _HEAVY_NS:
                context.connection.rest()

    def slow(self, context: Context, started: int, took: int, request: Any, message: Any) -> None:
        """A request has taken long. `request` is None if its frame is gone."""
        if self.watch is not None:
            self.watch.slow(context, started, took, self._slow_ns, request, message)

    def sample_next(self) -> None:
        """Have the next request recorded, whatever time it takes."""
        if self.watch is not None:
            self._samples_next = True
            self._find_special()

    def meter(self, metering: Callable[[Connection, memoryview], Answer] | None) -> None:
        """Have frames served by `metering`, which serves those of clients without a quota as plain ones."""
        self._metering = metering
        self._find_special()

    def _find_special(self) -> None:
        self._is_special = self._samples_next or self._metering is not None

    def _serve_special(self, connection: Connection, frame: memoryview) -> Answer:
        if self._samples_next and self.watch is not None:
            self._samples_next = False
            self._find_special()
            names = {key: api.name for key, (api, _) in self._handlers.items()}
            return self.watch.sampled(self.serve, names, connection, frame)
        assert self._metering is not None, "frames are sampled or metered"
        return self._metering(connection, frame)

    def _take_repeated(self, repeated: RepeatedRequests, frame: memoryview) -> tuple[int, Any] | None:
        """The correlation id and the response of a frame that the connection repeats, else None."""
        try:
            return repeated.take(frame)
        except Exception as e:
            raise self.error_of(repeated.context, e) from e

    def connection_lost(self, connection: Connection) -> None:
        repeated, connection.memo = connection.memo, None
        if repeated is not None:
            repeated.forget()
        self._on_lost(connection)

    async def stop(self) -> None:
        """End the handlers that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def route_of(self, header: RequestHeader) -> Route | None:
        """The route for a header, or None for an ApiVersions request that has an answer all the same."""
        return self._routes.get((header.api_key, header.api_version)) or self._find_route(header)

    def _find_route(self, header: RequestHeader) -> Route | None:
        """The route of the first request with an API and a version."""
        api_key, version = header.api_key, header.api_version
        api, handler = self._handlers.get(api_key, (None, None))
        if api is not None and handler is not None and api.supports(version):
            stats = self._stats(api.name)
            route = self._routes[api_key, version] = Route(
                api, version, handler, stats, self._learn.get((api_key, version))
            )
            return route
        self._metrics.count_unsupported(api_key, version)
        if api_key == API_VERSIONS.key:
            return None
        name = api.name if api is not None else "unknown"
        raise ProtocolError(f"unsupported request: API {api_key} ({name}) version {version}")

    def _later(
        self, route: Route, context: Context, correlation_id: int, response: Deferred[Any], started: int
    ) -> Answer:
        """Encode the value of the handler's deferred `response` when it is resolved."""
        written = partial(self.finish_late, route, context, correlation_id, started)
        context.handled_ns = handled = perf_counter_ns()
        if handled - started >= self._medium_ns:
            self.held(context, handled - started)
        if not route.is_hot:
            return self.large.later(route, context, correlation_id, response, started, written)
        if response.done:
            return written(response.value)
        response.request = route.stats
        response.convert = written
        return response

    def spawn(self, context: Context, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Run `work` as a task; an unexpected error closes the connection of the request."""
        response: Deferred[T] = Deferred()

        async def run() -> None:
            try:
                response.resolve(await work)
            except Exception as e:  # noqa: BLE001 - as in `serve`
                self.failed(context, e)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return response

    def failed(self, context: Context, error: Exception) -> None:
        """Close the connection of a request that met an unexpected error."""
        context.connection.fail(str(self.error_of(context, error)))

    def error_of(self, context: Context, error: Exception) -> ProtocolError:
        """The error that closes the connection of a request; logs one that was not expected."""
        if context.denials is not None:
            context.denials.end()
        if isinstance(error, ProtocolError):
            return error
        context.stats.failures += 1
        log.error(
            "handler_failed",
            api=context.stats.name,
            version=context.version,
            peer=context.connection.peer,
            error=repr(error),
            exc_info=error,
        )
        return ProtocolError(f"{context.stats.name} failed inside the broker")


def unsupported_api_versions(header: RequestHeader) -> Answer:
    """The one answer to a version that we do not know: v0, error 35, and our range of this API alone."""
    only = ApiVersion(
        api_key=API_VERSIONS.key, min_version=API_VERSIONS.min_version, max_version=API_VERSIONS.max_version
    )
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[only])
    return encode_response(API_VERSIONS, 0, header.correlation_id, response)
