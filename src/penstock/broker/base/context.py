"""What a handler knows about the request besides the request itself."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.broker.base.metrics import ApiStats
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["Context"]

T = TypeVar("T")


class Context:
    """Who asks, through which door, in which version."""

    __slots__ = ("broker", "client_id", "connection", "stats", "version")

    def __init__(
        self, broker: Broker, connection: Connection, client_id: str | None, version: int, stats: ApiStats
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.client_id = client_id
        self.version = version
        self.stats = stats

    @property
    def listener(self) -> Listener:
        return self.connection.listener

    @property
    def principal(self) -> str:
        return self.connection.principal

    @property
    def host(self) -> str:
        """The address that the request came from."""
        return self.connection.peer.rpartition(":")[0]

    def failed(self, error: Exception) -> None:
        """Something that nobody foresaw, after the handler returned: it costs the connection that asked."""
        self.broker.dispatcher.failed(self, error)

    def spawn(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Answer with what a coroutine returns: for handlers that found out that they have to wait."""
        return self.broker.dispatcher.spawn(self, work)
