"""The interfaces on both sides of a connection: the application that it serves, and the server that hosts it.

Both are generic over the connection, because the connection imports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.net.buffers import BufferPool
from penstock.net.response_queue import Answer
from penstock.net.turns import Turns
from penstock.net.unauthenticated import Unauthenticated
from penstock.net.unsent import UnsentResponses

__all__ = ["Application", "ConnectionHost"]

ConnectionT = TypeVar("ConnectionT")
ConnectionT_contra = TypeVar("ConnectionT_contra", contravariant=True)


class Application(Protocol[ConnectionT_contra]):
    """The application behind a connection."""

    def serve(self, connection: ConnectionT_contra, frame: memoryview) -> Answer:
        """Answer one frame; ProtocolError closes the connection."""
        ...

    def connection_lost(self, connection: ConnectionT_contra) -> None: ...


class ConnectionHost(Protocol[ConnectionT]):
    """The server of a connection: what all of its connections share."""

    application: Application[ConnectionT]
    loop: asyncio.AbstractEventLoop
    pool: BufferPool
    unauthenticated: Unauthenticated
    max_request_bytes: int
    #: the connection that serves the frames of one read, and the work to do before their answers are sent
    serving: ConnectionT | None
    due: list[Callable[[], None]]
    turns: Turns
    unsent: UnsentResponses

    def run_due(self) -> None: ...

    def admit(self, connection: ConnectionT) -> None: ...

    def forget(self, connection: ConnectionT) -> None: ...

    def rejected(self, connection: ConnectionT, reason: str) -> None: ...

    def handshake_failed(self, reason: str) -> None: ...

    def authentication_failed(self, connection: ConnectionT) -> None: ...

    def has_failed_often(self, connection: ConnectionT) -> bool: ...
