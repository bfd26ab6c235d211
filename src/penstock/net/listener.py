"""A listener: the address that a server binds, and the one that it advertises to clients."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Listener", "ListenerSecurity"]


class ListenerSecurity(Protocol):
    """TLS and SASL of a listener. `connection` is a `Connection`, `application` what serves it."""

    def wrap(self, connection: Any) -> asyncio.BufferedProtocol:
        """The protocol between the socket and a new connection."""
        ...

    def gate(self, connection: Any, application: Any) -> Any:
        """The application of a connection until it is authenticated."""
        ...

    def secured(self, connection: Any, channel: Any) -> None:
        """The TLS handshake of a connection is done."""
        ...

    def failed(self, connection: Any, reason: str) -> None:
        """The TLS handshake of a connection has failed."""
        ...


@dataclass(slots=True)
class Listener:
    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0
    security_protocol: str = "PLAINTEXT"
    #: None for a listener without TLS and SASL
    security: ListenerSecurity | None = None
