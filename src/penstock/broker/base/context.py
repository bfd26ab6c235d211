"""The context of a request: its connection, its client, its version."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter_ns
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.broker.base.metrics import ApiStats
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.security.principal import Principal, Session

__all__ = ["AsyncHandler", "Context", "Handler", "RequestTasks"]

T = TypeVar("T")


class RequestTasks(Protocol):
    """Runs what requests of one listener wait for."""

    def spawn(self, context: Context, work: Coroutine[Any, Any, T]) -> Deferred[T]: ...

    def failed(self, context: Context, error: Exception) -> None: ...


class Context:
    """A request's connection, client and version."""

    __slots__ = (
        "answers",
        "client_id",
        "connection",
        "handled_ns",
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
    #: whether another broker has forwarded the request of a client
    is_forwarded: bool = False

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
        return self.tasks.spawn(self, work)


#: (context, request) to a response or a (writer, content), a Deferred of either, None, or a coroutine
Handler: TypeAlias = Callable[[Context, Any], Any]
AsyncHandler: TypeAlias = Callable[[Context, Any], Coroutine[Any, Any, Any]]
