"""Several nodes of one cluster in one event loop, with real sockets on the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from unittest.mock import patch

import uvloop

from penstock.broker.app import lifecycle
from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.base.system_ports import SystemClock
from penstock.model.config import BrokerConfig
from penstock.net.client import Peer
from penstock.ports import Clock, Files
from penstock.storage.memory import MemoryFiles
from penstock.testing.clusters import HOST, reserve_port
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["HOST", "Cluster", "cluster", "eventually", "run"]

#: longer than anything here takes, on any machine: what waits this long has failed
PATIENCE_S: Final = 60.0
#: of a whole test
_LIMIT_S: Final = 300.0
#: so long that no session expires because the test machine is slow: a machine
#: may stand still for seconds
PATIENT: Final = {
    "broker.session.timeout.ms": "120000",
    "controller.quorum.fetch.timeout.ms": "60000",
    "offsets.commit.timeout.ms": "60000",
    "replica.lag.time.max.ms": "120000",
}


def run(main: Coroutine[Any, Any, None]) -> None:
    """On the loop of brokers: asyncio's own leaves connections open that it accepts while a server closes.

    uvloop swallows the exception of pytest's timeout: a test that hangs would never end.
    """
    uvloop.run(asyncio.wait_for(main, _LIMIT_S))


async def eventually(condition: Callable[..., bool], within_s: float = PATIENCE_S) -> None:
    """Return when `condition` holds; the nodes need the loop for that."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - of many objects' state, which has no event
            await asyncio.sleep(0.002)


class Cluster:
    """Nodes by id. Their disks are memory that outlives them; addresses stay the same over restarts."""

    def __init__(
        self, voters: Sequence[int], observers: Sequence[int] = (), config: Mapping[str, str] | None = None
    ) -> None:
        ids = [*voters, *observers]
        self._reserved = [reserve_port() for _ in range(2 * len(ids))]
        ports = [each.getsockname()[1] for each in self._reserved]
        internal = dict(zip(ids, ports, strict=False))
        quorum = ",".join(f"{node}@{HOST}:{internal[node]}" for node in voters)
        self.settings = {
            node: {
                "node.id": str(node),
                "listeners": f"PLAINTEXT://{HOST}:{port},INTERNAL://{HOST}:{internal[node]}",
                "controller.quorum.voters": quorum,
                "broker.rack": f"rack-{node}",
                "log.dirs": "/data",
                "penstock.memory": "true",
                **PATIENT,
                **(config or {}),
            }
            for node, port in zip(ids, ports[len(ids) :], strict=True)
        }
        self.disks: dict[int, Files] = {node: MemoryFiles() for node in ids}
        self.clocks: dict[int, Clock] = {node: SystemClock() for node in ids}
        self.brokers: dict[int, Broker] = {}
        self._clients: list[Peer] = []

    async def start(self, *nodes: int) -> None:
        """Start nodes together, all of them if none is named."""
        await asyncio.gather(*(self._start(node) for node in nodes or self.settings))

    async def _start(self, node: int) -> None:
        config = BrokerConfig(self.settings[node])
        broker = await Broker.open(
            config, system_world(config)._replace(files=self.disks[node], clock=self.clocks[node])
        )
        await broker.start()
        self.brokers[node] = broker

    async def kill(self, node: int) -> None:
        """End a node without goodbye, as `kill -9` would."""
        await self.brokers.pop(node).abort()

    async def stop(self, *nodes: int) -> None:
        """Stop nodes in good order, all that run if none is named."""
        await asyncio.gather(*(self.brokers.pop(node).stop() for node in nodes or list(self.brokers)))

    async def stop_in_turn(self, *nodes: int) -> None:
        """Stop all nodes in good order, one after the other.

        The last one does not wait for an answer to its last heartbeat: no controller is left to send one.
        """
        *first, last = nodes
        for node in first:
            await self.stop(node)
        with patch.object(lifecycle, "_SHUTDOWN_PATIENCE_S", 0.02):
            await self.stop(last)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await asyncio.gather(*(self.kill(node) for node in list(self.brokers)))
        for reserved in self._reserved:
            reserved.close()

    def new_port(self) -> int:
        """Another port that no other process gets."""
        self._reserved.append(reserve_port())
        return int(self._reserved[-1].getsockname()[1])

    def __getitem__(self, node: int) -> Broker:
        return self.brokers[node]

    @property
    def controller(self) -> Broker | None:
        """The node that is the active controller."""
        return next((b for b in self.brokers.values() if b.stages.cluster.node.controller.is_active), None)

    async def settled(self) -> Broker:
        """The active controller, once there is one that all running nodes know."""

        def agreed() -> bool:
            leaders = {broker.stages.cluster.node.leader_id for broker in self.brokers.values()}
            return (
                len(leaders) == 1
                and self.controller is not None
                and leaders == {self.controller.stages.config.node_id}
            )

        await eventually(agreed)
        assert self.controller is not None
        return self.controller

    async def call(
        self, node: int, api: Api[RequestT, ResponseT], request: RequestT, *, internal: bool = False
    ) -> ResponseT:
        """What a client of `node` gets; with `internal`, what another node would."""
        broker = self.brokers[node]
        listener = broker.stages.listening.listeners[0]
        if internal:
            assert broker.stages.listening.internal is not None
            listener = broker.stages.listening.internal.listener
        client = Peer(
            asyncio.get_running_loop(), HOST, listener.port, client_id="test", rng=broker.stages.world.rng
        )
        self._clients.append(client)
        return await client.send(api, request, PATIENCE_S)


@asynccontextmanager
async def cluster(
    voters: int = 3, observers: int = 0, config: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """A running cluster; voters are nodes 1 to n, observers follow."""
    nodes = Cluster(range(1, voters + 1), range(voters + 1, voters + observers + 1), config)
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.close()
