"""The network between processes: which hosts reach each other, and how faulty links affect TCP.

Within a connection, TCP does not lose, repeat or reorder data. A faulty network can delay a connection, reset
it, or leave it half open. The simulation does the same. A lost segment costs a retransmission timeout. A
partition holds bytes until it heals or the sender gives up. The peer of a dead process gets a reset at once,
the peer of a dead host never. Connections are independent, so data of one may overtake data of another.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from penstock.testing.simulation.kernel import Kernel
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.transport import SimTransport, Wire

__all__ = ["Link", "Network", "SimServer"]

_FIRST_PORT: Final = 32768
#: every interface, of which a simulated host has one
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
#: how long a connect goes on without an answer, and the pause between its attempts
_CONNECT_S: Final = 20.0
_KNOCK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Link:
    """The properties of the path from one host to another."""

    latency_s: tuple[float, float] = (0.0001, 0.001)
    bytes_per_s: float = 1e9
    #: how many segments need to be sent again
    loss: float = 0.0
    #: how long until that is noticed
    retransmit_s: tuple[float, float] = (0.2, 0.6)


class SimServer(asyncio.AbstractServer):
    """A bound port; it refuses connections until it serves, as a socket that does not listen does."""

    def __init__(self, network: Network, process: Process, factory: Callable[[], Any], port: int) -> None:
        self._network = network
        self.process = process
        self.factory = factory
        self.port = port
        self.serving = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def sockets(self) -> tuple[SimServer, ...]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self.process.host, self.port

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Simulated connections have no options: a window of constant size, and no keep-alive."""

    def close(self) -> None:
        self.serving = False
        self._network.unbind(self)

    def is_serving(self) -> bool:
        return self.serving

    async def start_serving(self) -> None:
        self.serving = True

    async def serve_forever(self) -> None:
        raise NotImplementedError("simulated servers are served by the loop")

    async def wait_closed(self) -> None:
        """Connections live on, as asyncio's before Python 3.12 do."""


class Network:
    """All hosts, ports and connections of a simulation."""

    def __init__(self, kernel: Kernel, rng: Random) -> None:
        self._kernel = kernel
        self._rng = rng
        self._servers: dict[tuple[str, int], SimServer] = {}
        self._wires: list[Wire] = []
        self._links: dict[tuple[str, str], Link] = {}
        # In the order in which they were cut, so that healing is the same in every run.
        self._cut: dict[tuple[str, str], None] = {}
        self._down: dict[str, None] = {}
        self._next_port = _FIRST_PORT
        self.link = Link()

    # -- faults

    def set_link(self, source: str, target: str, link: Link) -> None:
        """One direction between two hosts; everything else has the general `link`."""
        self._links[source, target] = link

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from `source` to `target`: half of a partition."""
        self._cut[source, target] = None

    def partition(self, side: Iterable[str], other: Iterable[str]) -> None:
        """Let nothing through between two sets of hosts."""
        for a in side:
            for b in other:
                self.cut(a, b)
                self.cut(b, a)

    def restore(self, source: str, target: str) -> None:
        """Let everything through again from `source` to `target`."""
        self._cut.pop((source, target), None)

    def heal(self) -> None:
        """Heal all links: held data arrives after its next retransmission."""
        self._cut.clear()
        self._links.clear()

    def host_down(self, host: str) -> None:
        """Switch the machine off: its peers get no message about it."""
        self._down[host] = None
        for wire in self._live():
            wire.host_died(host)

    def host_up(self, host: str) -> None:
        self._down.pop(host, None)

    def reset_some(self, share: float) -> int:
        """Break some connections on the way, as a firewall that forgets does; how many."""
        chosen = [wire for wire in self._live() if self._rng.random() < share]
        for wire in chosen:
            wire.reset()
        return len(chosen)

    def process_died(self, process: Process, *, silently: bool) -> None:
        """Close the sockets of a dead process: peers get a reset, unless the machine is down, too."""
        for key in [key for key, server in self._servers.items() if server.process is process]:
            del self._servers[key]
        for wire in self._live():
            wire.process_died(process, silently=silently)

    def _live(self) -> list[Wire]:
        self._wires = [wire for wire in self._wires if not wire.is_over]
        return self._wires

    # -- used by wires

    def passes(self, source: str, target: str) -> bool:
        """Whether a segment arrives now; between processes of one host always."""
        if source == target:
            return source not in self._down
        return (source, target) not in self._cut and source not in self._down and target not in self._down

    def is_down(self, host: str) -> bool:
        return host in self._down

    def delay_s(self, source: str, target: str, size: int) -> float:
        """How long a segment takes."""
        link = self._links.get((source, target), self.link)
        rng = self._rng
        delay = rng.uniform(*link.latency_s) + size / link.bytes_per_s
        while link.loss and rng.random() < link.loss:
            delay += rng.uniform(*link.retransmit_s)
        return delay

    def retransmit_s(self, source: str, target: str) -> float:
        link = self._links.get((source, target), self.link)
        return self._rng.uniform(*link.retransmit_s)

    def split(self, size: int) -> int:
        """How much of `size` bytes arrives at once: usually all."""
        return size if size < 2 or self._rng.random() < 0.9 else self._rng.randrange(1, size)

    # -- sockets

    def bind(self, process: Process, factory: Callable[[], Any], host: str, port: int) -> SimServer:
        if host in _ANY_ADDRESS:
            host = process.host
        if host != process.host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self._new_port()
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[host, port] = SimServer(self, process, factory, port)
        return server

    def unbind(self, server: SimServer) -> None:
        self._servers.pop(server.getsockname(), None)

    async def connect(
        self, process: Process, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """As `loop.create_connection`: refused where no server listens, times out where no host answers."""
        give_up_at = self._kernel.time() + _CONNECT_S
        while True:
            await asyncio.sleep(self.delay_s(process.host, host, 0) + self.delay_s(host, process.host, 0))
            if self.passes(process.host, host) and self.passes(host, process.host):
                break
            if self._kernel.time() > give_up_at:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            await asyncio.sleep(_KNOCK_S)
        server = self._servers.get((host, port))
        if server is None or not server.serving:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        wire = Wire(
            self._kernel, self, process, server.process, (process.host, self._new_port()), (host, port)
        )
        self._wires.append(wire)
        protocol = factory()
        # The kernel accepts, whether or not the process is awake.
        self._kernel.deliver(server.process, wire.accepted, server.factory)
        wire.far.attach(protocol)
        protocol.connection_made(wire.far)
        return wire.far, protocol

    def _new_port(self) -> int:
        self._next_port += 1
        return self._next_port
