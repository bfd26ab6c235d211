"""The interface of a network between brokers that can be cut: `Links` or `Namespaces`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

__all__ = ["Network", "Place"]


class Place(NamedTuple):
    """Where a broker is."""

    #: the address that it listens on
    host: str
    client_port: int
    internal_port: int
    #: where other brokers reach its internal listener
    peers: str
    #: the start of its command line
    within: tuple[str, ...] = ()


class Network(Protocol):
    """There from `start` to `close`."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def place(self, node: int) -> Place: ...

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Let nothing pass from the first node of each pair to the second; clients reach both."""

    def heal(self) -> None: ...
