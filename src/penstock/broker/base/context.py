"""The context of a request: its connection, its client, its version."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from time import perf_counter_ns
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.broker.base.denials import Denials
from penstock.broker.base.metering import RequestMeter, timed
from penstock.broker.base.metrics import ApiStats
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.net.turns import Turns
from penstock.security.principal import Principal, Session

__all__ = ["AsyncHandler", "Context", "Handler", "LargeContext", "MeteredContext", "RequestTasks"]

T = TypeVar("T")


class RequestTasks(Protocol):
    """Runs what requests of one listener wait for."""

    turns: Turns

    def spawn(self, context: Context, work: Coroutine[Any, Any, T]) -> Deferred[T]: ...

    def failed(self, context: Context, error: Exception) -> None: ...


class Context:
    """A request's connection, client and version."""

    __slots__ = (
        "answers",
        "client_id",
        "connection",
        "denials",
        "handled_ns",
        "has_begun",
        "marks",
        "stats",
        "tasks",
        "version",
    )

    #: For the log of slow requests. Not set for a request that is answered at once: when the handler has
    #: returned, when each stage of the wait has ended, and the answers of a Produce request.
    handled_ns: int
    marks: dict[str, int]
    answers: Sequence[Any]
    #: Set when a long computation begins. The next computations of the request hold its result, so they do
    #: not wait for those of other requests.
    has_begun: bool
    #: whether another broker has forwarded the request of a client
    is_forwarded: bool = False
    #: whether the request is too large to be handled at once: its handler has to take turns
    is_large: bool = False
    #: charges the request to the quotas of its client; None for a client without a quota
    meter: RequestMeter | None = None

    def __init__(
        self,
        tasks: RequestTasks,
        connection: Connection,
        client_id: str | None,
        version: int,
        stats: ApiStats,
    ) -> None:
        """`tasks` are those of the listener that received the request: they end with it."""
        self.tasks = tasks
        self.connection = connection
        self.client_id = client_id
        self.version = version
        self.stats = stats
        #: the denials of the request, from the first one on; the dispatcher ends them with the response
        self.denials: Denials | None = None

    @property
    def listener(self) -> Listener:
        return self.connection.listener

    @property
    def session(self) -> Session:
        """The principal of the request, and the address that it came from."""
        return self.connection.session

    @property
    def principal(self) -> Principal:
        return self.session.principal

    @property
    def host(self) -> str:
        """The address that the request came from."""
        return self.session.host

    def mark(self, stage: str) -> None:
        """Note that a stage of the wait for the response ends now. Not for the hot path."""
        try:
            self.marks[stage] = perf_counter_ns()
        except AttributeError:
            self.marks = {stage: perf_counter_ns()}

    def failed(self, error: Exception) -> None:
        """Close the connection: an unexpected error arose after the handler had returned."""
        self.tasks.failed(self, error)

    def spawn(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Answer with the result of a coroutine: for handlers that have to wait after all."""
        return self.tasks.spawn(self, work if self.meter is None else timed(work, self.meter))

    def in_turns(self, steps: Generator[object, None, T]) -> T | Deferred[T]:
        """Answer with the result of a computation that may be long; each of its steps has to be short.

        A short computation is done at once. A long one lets other requests go on between its slices, and the
        connection serves no further request until it is done.
        """
        done = self._begin(steps)
        return self.spawn(self._finish(steps)) if done is None else done[0]

    async def until_done(self, steps: Generator[object, None, T]) -> T:
        """The result of a computation that may be long, for coroutines; see `in_turns`."""
        done = self._begin(steps)
        return await self._finish(steps) if done is None else done[0]

    def _begin(self, steps: Generator[object, None, T]) -> tuple[T] | None:
        """The result of a short computation. A long one stalls the connection until it is finished."""
        done = self.tasks.turns.run_first(steps)
        if done is None:
            self.connection.stall()
        return done

    async def _finish(self, steps: Generator[object, None, T]) -> T:
        """The rest of a computation. The connection is stalled until then."""
        try:
            return await self.compute(steps)
        finally:
            self.connection.unstall()

    async def compute(self, steps: Generator[object, None, T]) -> T:
        """The result of a long computation, of which a client has few in progress at once."""
        begins = not getattr(self, "has_begun", False)
        self.has_begun = True
        return await self.tasks.turns.run(steps, self.connection, begins=begins)

    async def turn(self) -> None:
        """Wait between two parts of a long computation, each of at most a few milliseconds."""
        await self.tasks.turns.large_turn(self.connection)

    def after_turn(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """A coroutine that begins when it is the client's turn.

        Why: tasks of many connections would all begin in one iteration of the event loop. The connection
        serves no later request before that, which keeps the order of requests. It is stalled now, not when
        the coroutine starts: the next request may be in the same bytes.
        """
        self.connection.stall()
        return self._after_turn(work)

    async def _after_turn(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self.tasks.turns.turn(self.connection)
        except BaseException:
            work.close()
            raise
        finally:
            self.connection.unstall()
        return await work


class LargeContext(Context):
    """The context of a large request."""

    __slots__ = ()

    is_large = True


class MeteredContext(Context):
    """The context of a request with a meter: contexts without one do not store that, which takes steps."""

    __slots__ = ("is_large", "meter")

    def __init__(
        self,
        tasks: RequestTasks,
        connection: Connection,
        client_id: str | None,
        version: int,
        stats: ApiStats,
        meter: RequestMeter,
    ) -> None:
        super().__init__(tasks, connection, client_id, version, stats)
        self.meter = meter
        self.is_large = False


#: (context, request) to a response or a (writer, content), a Deferred of either, None, or a coroutine
Handler: TypeAlias = Callable[[Context, Any], Any]
AsyncHandler: TypeAlias = Callable[[Context, Any], Coroutine[Any, Any, Any]]
