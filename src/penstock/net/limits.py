"""The limits that all connections of a server share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_request_bytes: int = 100 << 20
    max_connections: int = 1 << 31
    max_connections_per_ip: int = 1 << 31
    #: addresses that have a limit of their own instead
    max_connections_by_ip: Mapping[str, int] = field(default_factory=dict)
    #: connections of one listener
    max_connections_by_listener: Mapping[str, int] = field(default_factory=dict)
    #: new ones per second, by listener, "" for all; those that come faster are served later
    rates: Mapping[str, int] = field(default_factory=dict)
    max_idle_s: float = 600.0
    #: bytes of all receive buffers together, and of those of one client address
    memory_bytes: int = 512 << 20
    memory_bytes_per_ip: int = 256 << 20
    #: how long a frame may be incomplete, beside the time that its bytes take at the lowest rate
    frame_timeout_s: float = 30.0
    frame_bytes_per_s_min: int = 16 << 10
    #: how long the TLS handshake and the authentication of a connection may take
    authentication_timeout_s: float = 10.0
    #: unauthenticated connections of one listener, and of one client address on it
    max_unauthenticated: int = 1 << 31
    max_unauthenticated_per_ip: int = 1 << 31
    backlog: int = 1024
    #: SO_SNDBUF and SO_RCVBUF of accepted sockets; -1 leaves them to the operating system
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
