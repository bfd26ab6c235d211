"""Routes a frame to its handler, and the handler's response back.

A handler is `handler(context, request)`. It returns the response, a `Deferred` of it, or None if the request
gets no response. A handler off the hot path may be a coroutine. A handler on it may return a writer and its
content (as `response_skeleton` and `replica_fetch.write_response`). Handlers turn expected errors into error
codes. An unexpected error is logged, and closes the connection of the request.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from time import perf_counter_ns
from typing import Any, Final, TypeVar

from penstock.broker.base.context import Context, Handler
from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import UNIT_NS, ApiStats, Metrics
from penstock.broker.base.repeated import Learn, RepeatedRequests
from penstock.broker.request.error_codes import error_codes
from penstock.broker.request.request_watch import NEVER_NS, RequestWatch
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import RequestHeader, decode_request_header, encode_response, response_writer

__all__ = ["Dispatcher", "Route", "unsupported_api_versions"]

T = TypeVar("T")
log = get_logger("requests")
#: the hot path: their handlers know whether a response has errors
_COUNT_THEMSELVES: Final = frozenset({PRODUCE.key, FETCH.key})


class Route:
    """All that is known about one version of one API before a request comes."""

    __slots__ = (
        "codes",
        "decode",
        "handler",
        "is_async",
        "is_flexible",
        "latency",
        "learn",
        "observe",
        "stats",
        "write",
    )

    def __init__(
        self, api: Api[Any, Any], version: int, handler: Handler, stats: ApiStats, learn: Learn | None
    ) -> None:
        self.handler = handler
        self.learn = learn
        self.is_flexible = version >= api.flexible_from
        self.is_async = inspect.iscoroutinefunction(handler)
        self.decode = api.request_decoder(version)
        self.write = response_writer(api, version)
        self.stats = stats
        self.latency = stats.latency
        self.observe = stats.latency.observe
        #: returns the error codes of a response; None if the handler counts them
        self.codes = None if api.key in _COUNT_THEMSELVES else error_codes(api.response)


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
    ) -> None:
        """`learn` has, by API key and version, functions that recognise repeated requests.

        `on_lost` is called with each connection that has ended. `stats` returns the counters of an API by its
        name: those of clients if it is None. `watch` records slow requests.
        """
        self.watch = watch
        #: the time from which on a request may be slow
        self.slow_ns = NEVER_NS
        self._metrics = metrics
        self._stats = stats or metrics.api
        self._on_lost = on_lost
        self._learn = learn
        self._handlers = {api.key: (api, handler) for api, handler in handlers.items()}
        self._routes: dict[tuple[int, int], Route] = {}
        # In order, so that a simulated end of all of them is the same every time.
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: serves a frame; replaced while a client has a quota, so that others pay nothing for quotas
        self.serve: Callable[[Connection, memoryview], Answer] = self.serve_plain
        #: serves a frame when the one that is sampled has come
        self._unsampled: Callable[[Connection, memoryview], Answer] = self.serve

    @property
    def apis(self) -> Iterable[Api[Any, Any]]:
        """The APIs that have a handler."""
        return [api for api, _ in self._handlers.values()]

    def serve_plain(self, connection: Connection, frame: memoryview) -> Answer:
        started = perf_counter_ns()
        repeated: RepeatedRequests | None = connection.memo
        if repeated is not None:
            answer = self._serve_repeated(repeated, frame, started)
            if answer is not None:
                return answer
        header = decode_request_header(frame)
        api_key, version, correlation_id, client_id, body_offset = header
        route = self._routes.get((api_key, version))
        if route is None:
            route = self._find_route(header)
            if route is None:
                return unsupported_api_versions(header)
        request = route.decode(frame, body_offset)
        context = Context(self, connection, client_id, version, route.stats)
        try:
            if route.learn is not None:
                route.learn(context, request, frame, body_offset)
            response = route.handler(context, request)
            if route.is_async:
                response = self.spawn(context, response)
        except Exception as e:
            raise self._bug(context, e) from e
        parts: Parts | None
        if response.__class__ is tuple:
            write, content = response
            parts = write(correlation_id, content)
        elif response is None:
            parts = None
        elif isinstance(response, Deferred):
            return self._later(route, context, correlation_id, response, started)
        else:
            parts = route.write(correlation_id, response)
            if route.codes is not None:
                route.stats.count_errors(route.codes(response))
        took = perf_counter_ns() - started
        # `Histogram.observe`, without the call.
        latency = route.latency
        latency.total_ns += took
        latency.buckets[(took // UNIT_NS).bit_length()] += 1
        if took >= self.slow_ns:
            self.slow(context, started, took, request, response)
        return parts

    def slow(self, context: Context, started: int, took: int, request: Any, message: Any) -> None:
        """A request has taken long. `request` is None if its frame is gone."""
        if self.watch is not None:
            self.watch.slow(context, started, took, self.slow_ns, request, message)

    def sample_next(self) -> None:
        """Have the next request recorded, whatever time it takes."""
        if self.watch is not None and self.serve != self._serve_sampled:
            self._unsampled, self.serve = self.serve, self._serve_sampled

    def _serve_sampled(self, connection: Connection, frame: memoryview) -> Answer:
        assert self.watch is not None
        self.serve = self._unsampled
        names = {key: api.name for key, (api, _) in self._handlers.items()}
        return self.watch.sampled(self.serve, names, connection, frame)

    def _serve_repeated(self, repeated: RepeatedRequests, frame: memoryview, started: int) -> Answer:
        """The answer to a frame that the connection repeats; None if it is any other frame."""
        try:
            taken = repeated.take(frame)
        except Exception as e:
            raise self._bug(repeated.context, e) from e
        if taken is None:
            return None
        correlation_id, response = taken
        route = self._routes[repeated.route]
        if isinstance(response, Deferred):
            return self._later(route, repeated.context, correlation_id, response, started)
        parts: Parts
        if response.__class__ is tuple:
            write, content = response
            parts = write(correlation_id, content)
        else:
            parts = route.write(correlation_id, response)
        took = perf_counter_ns() - started
        route.observe(took)
        if took >= self.slow_ns:
            self.slow(repeated.context, started, took, None, response)
        return parts

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

    def _find_route(self, header: RequestHeader) -> Route | None:
        """The route for a header, or None for an ApiVersions request that has an answer all the same."""
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
        """Have what a handler resolves `response` with become what goes out."""

        def written(message: Any) -> Parts | None:
            parts: Parts | None = None
            if message.__class__ is tuple:
                write, content = message
                parts = write(correlation_id, content)
            elif message is not None:
                try:
                    parts = route.write(correlation_id, message)
                except Exception as e:  # noqa: BLE001 - as in `serve`
                    self.failed(context, e)
                    return None
                if route.codes is not None:
                    route.stats.count_errors(route.codes(message))
            took = perf_counter_ns() - started
            latency = route.latency
            latency.total_ns += took
            latency.buckets[(took // UNIT_NS).bit_length()] += 1
            if took >= self.slow_ns:
                self.slow(context, started, took, None, message)
            return parts

        if response.done:
            return written(response.value)
        context.handled_ns = perf_counter_ns()
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
        context.connection.fail(str(self._bug(context, error)))

    def _bug(self, context: Context, error: Exception) -> ProtocolError:
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
