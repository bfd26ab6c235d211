"""A listener: the address that a server binds, and the one that it advertises to clients."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Listener"]


@dataclass(slots=True)
class Listener:
    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0
    security_protocol: str = "PLAINTEXT"
