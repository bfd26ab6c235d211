"""Chooses free ports for brokers on this machine, and explains why a port cannot be used."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

from penstock.cli.failure import Failure, misused

__all__ = ["cannot_listen", "chosen_port", "free_block", "free_port", "internal_port", "is_free_block"]

_INTERNAL_OFFSET: Final = 10_000
#: where any port will do: none of those that systems give to outgoing connections, and may have given then
_ANY_PORTS: Final = range(20_000, 32_000)
_HIGHEST_PORT: Final = 65_535


def cannot_listen(error: OSError, where: str) -> Failure:
    """The message for an error of a listening socket."""
    if error.errno == errno.EADDRINUSE:
        return _in_use(where)
    if error.errno == errno.EACCES:
        return Failure(f"not allowed to listen on {where}: choose a --port above 1023")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return Failure(f"cannot listen on {where}: choose a --host that this machine has")
    return Failure(str(error))


def chosen_port(host: str, port: int, taken: set[int]) -> int:
    """The requested port, or any free one for 0; adds it to `taken`."""
    if port == 0:
        return free_port(host, 0, taken)
    if port > _HIGHEST_PORT:
        misused(f"there is no port {port}: choose a lower --port")
    if port in taken or not _is_free(host, port):
        raise _in_use(f"{host}:{port}")
    taken.add(port)
    return port


def free_port(host: str, wanted: int, taken: set[int]) -> int:
    """The wanted port if it is free, else any free port; adds it to `taken`."""
    others = random.sample(_ANY_PORTS, len(_ANY_PORTS))
    candidates = [wanted, *others] if 0 < wanted <= _HIGHEST_PORT else others
    for port in candidates:
        if port not in taken and _is_free(host, port):
            taken.add(port)
            return port
    raise Failure(f"no free port on {host}: choose others with --port")


def free_block(host: str, count: int) -> int:
    """The first of `count` consecutive free ports, whose internal ports are free, too."""
    # Internal ports follow at a distance and must be none of those for outgoing connections, either.
    for first in random.sample(range(_ANY_PORTS.start, _ANY_PORTS.stop - _INTERNAL_OFFSET - count), 1000):
        if is_free_block(host, first, count):
            return first
    raise Failure(f"no {count} consecutive free ports on {host}: choose the first with --port")


def is_free_block(host: str, first: int, count: int) -> bool:
    """Whether consecutive ports and their internal ports are free."""
    ports = range(first, first + count)
    return all(_is_free(host, port) and _is_free(host, port + _INTERNAL_OFFSET) for port in ports)


def internal_port(host: str, client_port: int, taken: set[int]) -> int:
    """The port of the internal listener: at a fixed distance from the client port, if that is suitable."""
    wanted = client_port + _INTERNAL_OFFSET
    return free_port(host, wanted if wanted < _ANY_PORTS.stop else 0, taken)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)  # the next would not say that it is the name
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise cannot_listen(error, f"{host}:{port}") from error
    return True


def _in_use(where: str) -> Failure:
    return Failure(f"{where} is in use: stop the process that listens there, or choose another --port")
