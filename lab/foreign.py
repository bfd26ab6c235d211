"""Servers of other protocols, for comparisons and for the bridge, with the interface of `lab.server`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lab.server import HOST, Server

__all__ = ["ForeignServer", "greets", "started"]


def greets(port: int, hello: bytes, expected: bytes, timeout: float) -> bool:
    """Returns true if the server's first bytes after `hello` begin with `expected`."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(hello)
            return connection.recv(64).startswith(expected)
    except OSError:
        return False


@dataclass(slots=True)
class ForeignServer(Server):
    """A server whose protocol `is_ready` knows. `start` returns when the server accepts clients.

    Its `bootstrap` is HOST:PORT of the protocol that its name says.
    """

    is_ready: Callable[[float], bool] = lambda timeout: True

    def _answers(self, request: bytes, timeout: float) -> bool:
        return self.is_ready(timeout)


@contextmanager
def started(*servers: Server) -> Iterator[None]:
    """Start servers together, and stop them at the end, also if one of them does not start."""
    with ExitStack() as running:
        for server in servers:
            running.callback(server.stop)
            server.launch()
        for server in servers:
            server.wait_until_ready()
        yield
