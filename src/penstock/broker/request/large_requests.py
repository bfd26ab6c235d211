"""Serves requests that are too large to be decoded, handled or encoded at once.

A large request is decoded in slices and divided into parts (`division`). Each part goes through the handler
of its API, with all checks, like a request of its own. The response is joined and encoded in slices. Between
the slices other clients are served (`Turns`). The connection serves no later request meanwhile, so the order
of requests holds, and a connection has at most one large request in memory. Those of all connections of a
client are bounded (`DECODED_BYTES_MAX`), except those of nodes: one of them may wait for another, on
another node. The largest requests and responses are also freed in portions (`freeing`).

The time of all slices is the time of the request, for quotas and metrics.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from time import perf_counter_ns
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context, RequestTasks
from penstock.broker.base.metering import charged
from penstock.broker.request.division import continued_levels, is_excessive, parts, refused
from penstock.broker.request.divisions import division_of
from penstock.broker.request.freeing import FREED_REQUEST_BYTES, FREED_RESPONSE_BYTES, Freeing
from penstock.broker.request.joining import Join
from penstock.broker.request.oversized import oversized, with_too_many_elements
from penstock.broker.request.repeats import Seen
from penstock.broker.request.route import Route
from penstock.model.errors import TooManyElements
from penstock.net.buffers import is_kept
from penstock.net.client_limit import ClientLimit
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.net.turns import SLICE_S
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import RequestHeader, decode_response
from penstock.wire.portions import PORTION
from penstock.wire.slicing import LargeMessage

__all__ = ["DECODED_BYTES_MAX", "LargeRequests", "Prepare"]

T = TypeVar("T")
#: completes a response before it is encoded: sets its throttle time
Prepare: TypeAlias = Callable[[Any], object]
_SIZE_BYTES: Final = 4
#: bytes of the frames of one client that are decoded at once; a larger one is decoded alone
DECODED_BYTES_MAX: Final = 2 << 20
#: parts of a request that may wait for their responses at once
_PARTS_IN_FLIGHT: Final = 64


class _Tasks(RequestTasks, Protocol):
    """The dispatcher of a listener."""

    def finish_late(
        self,
        route: Route,
        context: Context,
        correlation_id: int,
        started: int,
        message: Any,
        parts: Parts | None = None,
    ) -> Parts | None: ...


class LargeRequests:
    """The large requests of one dispatcher."""

    def __init__(
        self,
        tasks: _Tasks,
        record_bytes_max: Callable[[], int] | None = None,
        memory: ClientLimit | None = None,
    ) -> None:
        """`record_bytes_max` returns the size of the largest batch of records.

        `memory` bounds the requests that are decoded at once; None does not bound them.
        """
        self._tasks = tasks
        self._record_bytes_max = record_bytes_max
        self._memory = memory
        self.freeing: Final = Freeing()

    def serve(
        self,
        route: Route,
        context: Context,
        header: RequestHeader,
        frame: memoryview,
        started: int,
        prepare: Prepare | None = None,
    ) -> Answer:
        """Decode, handle and encode a large request."""
        if self._record_bytes_max is not None:
            refused = oversized(route.api, len(frame), self._record_bytes_max())
            if refused is not None:
                # Before it is copied, several times: 40 MB take 90 ms.
                route.stats.count_errors([refused.error_code])
                route.observe(perf_counter_ns() - started)
                return route.write(header.correlation_id, refused)
        data: bytes | bytearray | memoryview = frame
        if not is_kept(frame):
            # The offsets of records are written into the frame.
            data = bytearray(frame) if route.is_hot else frame.tobytes()
        # Batches of records are not decoded, and responses to Produce wait for followers.
        copy = _Copy(context.connection, len(data), None if route.api is PRODUCE else self._memory)

        async def work() -> Parts | None:
            try:
                await copy.admitted()
                response = await self._handled(route, context, data, header.body_offset, copy)
            finally:
                copy.release()
            context.handled_ns = perf_counter_ns()
            if prepare is not None:
                prepare(response)
            return await self._encoded(route, context, header.correlation_id, response, started)

        return self._spawn(route, context, work())

    def encode(
        self, route: Route, context: Context, correlation_id: int, response: Any, started: int
    ) -> Deferred[Parts | None]:
        """Encode a large response."""
        work = self._encoded(route, context, correlation_id, response, started)
        return self._spawn(route, context, work)

    def later(
        self,
        route: Route,
        context: Context,
        correlation_id: int,
        response: Deferred[Any],
        started: int,
        written: Callable[[Any], Parts | None],
    ) -> Deferred[Parts | None]:
        """The answer with a response that is still to come. `written` encodes it if it is not large."""
        answer: Deferred[Parts | None] = Deferred()
        answer.on_cancel = response.cancel
        answer.request = route.stats
        context.handled_ns = perf_counter_ns()

        def resolved(message: Any) -> None:
            try:
                encoded = written(message)
            except LargeMessage:
                large = self.encode(route, context, correlation_id, message, started)
                large.then(answer.resolve)
            else:
                answer.resolve(encoded)

        response.then(resolved)
        return answer

    async def _encoded(
        self, route: Route, context: Context, correlation_id: int, response: Any, started: int
    ) -> Parts | None:
        encoded: Parts | None = None
        if context.denials is not None:
            # The handler has checked all of the request: its denials do not wait for the slices.
            context.denials.end()
        if response is not None and response.__class__ is not tuple:
            # At once: it holds the response, whatever else its client computes.
            write = route.write_sliced(correlation_id, response)
            try:
                encoded = await self._tasks.turns.run(write, context.connection, begins=False)
            finally:
                if encoded is None or sum(map(len, encoded)) > FREED_RESPONSE_BYTES:
                    self.freeing.add(response)
        return self._tasks.finish_late(route, context, correlation_id, started, response, encoded)

    async def _handled(
        self,
        route: Route,
        context: Context,
        frame: bytes | bytearray | memoryview,
        body_offset: int,
        copy: _Copy,
    ) -> Any:
        """The response to a large request, or (writer, content) as from its handler."""
        # A copy of 90 MB holds the event loop for 40 ms.
        copies = not isinstance(frame, memoryview)
        decode = route.api.sliced_request_decoder(context.version, copies=copies)
        steps = decode(frame, body_offset)
        request = next(steps)
        assert request is not None, "the message comes first"
        try:
            try:
                await context.compute(steps)
            except TooManyElements:
                response = with_too_many_elements(route.api, context.version)
                if response is None:
                    raise
                return response
            division = division_of(route.api, context.version)
            if division is not None:
                return await self._handled_in_parts(route, context, Join(division), request, copy)
            await context.turn()
            answer = route.handler(context, request)
            copy.release()
            return await _answered(answer)
        finally:
            # Also if it is damaged at its end, or if its connection was closed meanwhile.
            if len(frame) > FREED_REQUEST_BYTES:
                self.freeing.add(request)

    async def _handled_in_parts(
        self, route: Route, context: Context, join: Join, request: Any, copy: _Copy
    ) -> Any:
        is_done = False
        try:
            response = await _handled_in_parts(route, context, join, request, copy)
            is_done = True
            return response
        finally:
            if len(join.known) > PORTION:
                self.freeing.add(join.known)
            if not is_done and join.response is not None:
                self.freeing.add(join.response)

    def _spawn(self, route: Route, context: Context, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Run `work` as a task; the connection serves no further request until it is done."""
        connection, meter = context.connection, context.meter
        connection.stall()

        async def run() -> T:
            try:
                return await (work if meter is None else charged(work, meter))
            finally:
                connection.unstall()

        answer = self._tasks.spawn(context, run())
        answer.request = route.stats
        return answer


class _Copy:
    """The bytes of a large request, which are memory of requests until the request only waits.

    A request may wait for as long as its client likes, such as a JoinGroup for the other members. All
    connections share the memory of requests: they would wait as long.
    """

    __slots__ = ("_connection", "_memory", "_owner", "_size")

    def __init__(self, connection: Connection, size: int, memory: ClientLimit | None) -> None:
        self._connection = connection
        self._size = size
        self._memory = memory
        #: the client that it counts for, once it is admitted
        self._owner: Hashable = None
        connection.stall(size)

    async def admitted(self) -> None:
        """Wait until it may be decoded."""
        if self._memory is not None:
            owner = self._connection.owner
            await self._memory.enter(owner, self._size)
            self._owner = owner

    def release(self) -> None:
        size, self._size = self._size, 0
        if size:
            self._connection.unstall(size)
            if self._memory is not None and self._owner is not None:
                self._memory.leave(self._owner, size)


async def _handled_in_parts(route: Route, context: Context, join: Join, request: Any, copy: _Copy) -> Any:
    """Several parts may wait at once, for example for a coordinator; their order stays."""
    division, seen = join.division, Seen(route.api.key)
    waiting: deque[Any] = deque()

    async def add_first() -> None:
        response, continued = waiting.popleft()
        if isinstance(response, Deferred):
            response = response.value if response.done else await awaited(response)
        if response.__class__ is tuple:
            response = _decoded(route, context, response)
        join.add(response, continued)

    too_many = is_excessive(division, request)
    clock, until = context.tasks.turns.clock, 0.0
    for part in parts(division, request, ungrouped=too_many):
        if clock() >= until:
            await context.turn()
            until = clock() + SLICE_S
        if part is None:
            continue
        if too_many:
            join.add(refused(route.api, division, part))
            continue
        continued = continued_levels(division, part)
        refusals = seen.refusals(part)
        if not refusals or getattr(part, division.request[0].name):
            answer = route.handler(context, part)
            waiting.append((await answer if inspect.isawaitable(answer) else answer, continued))
        waiting.extend((refusal, 0) for refusal in refusals)
        while waiting and (len(waiting) > _PARTS_IN_FLIGHT or _is_done(waiting[0][0])):
            await add_first()
    copy.release()
    while waiting:
        await add_first()
        await context.turn()
    return join.response


def _is_done(answer: Any) -> bool:
    return not isinstance(answer, Deferred) or answer.done


async def _answered(answer: Any) -> Any:
    if inspect.isawaitable(answer):
        return await answer
    return await awaited(answer) if isinstance(answer, Deferred) else answer


def _decoded(route: Route, context: Context, answer: tuple[Any, Any]) -> Any:
    """The message of a (writer, content), which can be joined with others."""
    write, content = answer
    frame = b"".join(write(0, content))
    return decode_response(route.api, context.version, memoryview(frame)[_SIZE_BYTES:])
