"""A simulated cluster: machines, clients and the checkers that observe them.

Faults, directed faults, healing courses and disasters act on a `SimCluster`. `scenario` builds one from a
seed's options and runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final, Protocol

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import ClientChecker
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.disasters.damage import Damage
from penstock.testing.simulation.history import Coordinates, History
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.observation import Observation
from penstock.testing.simulation.security import new_securities
from penstock.testing.simulation.workload import Producer

__all__ = ["GROUP", "TOPIC", "SimCluster", "Worker"]

TOPIC: Final = "events"
GROUP: Final = "group"


class Worker(Protocol):
    """The program of a client. It runs until `stopping` is set, and ends its current operation."""

    stopping: bool

    async def run(self) -> None: ...


class SimCluster:
    """Nodes, an admin client and the workers of one run. Nothing runs until the scenario boots the nodes."""

    def __init__(
        self,
        seed: int,
        settings: Sequence[dict[str, str]],
        *,
        partitions: int,
        loss: float,
        compaction: bool,
        disaster: bool,
        secured: bool = False,
    ) -> None:
        self.seed = seed
        self._secured = secured
        self.loop = SimLoop(seed)
        self.loop.network.link = Link(loss=loss)
        self.loop.trace.is_encrypted = secured
        self.rng = Random(f"{seed}/scenario")
        self.history = History(self.note)
        self.checker = ClientChecker()
        #: whether brokers compact `__consumer_offsets` during the run
        self.compaction = compaction
        self.nodes = [Node(self.loop, seed, i, each) for i, each in enumerate(settings, start=1)]
        # A single broker may lose unacknowledged batches and write others at their offsets in the same epoch.
        self.observation = Observation(self.nodes, GROUP, self._coordinates) if len(self.nodes) > 1 else None
        if self.observation is not None:
            self.loop.after_step = self.observation.after_step
        self.damage: Damage | None = None
        if disaster:
            self.damage = Damage(self.nodes, self.checker, self.observation, self.note, self.rng)
        self.partitions = [TopicPartition(TOPIC, i) for i in range(partitions)]
        self.admin = self.client("admin")
        self.workers: list[tuple[Client, Worker]] = []
        self._running: list[asyncio.Task[None]] = []

    def note(self, subject: str, text: str) -> None:
        """Write a line of the run's history; the trace hash covers it."""
        self.loop.trace.note(self.loop.time(), subject, text)

    def client(self, name: str) -> Client:
        bootstrap = [node.address for node in self.nodes]
        rng = Random(f"{self.seed}/{name}")
        securities = new_securities(Random(f"{self.seed}/{name}/nonces")) if self._secured else None
        return Client(self.loop, name, bootstrap, rng, self.history, securities)

    def start_workers(self) -> None:
        for client, worker in self.workers:
            self._start(client, worker)

    async def stop_workers(self) -> None:
        """Wait until every client has finished its current operation and stopped."""
        for _, worker in self.workers:
            worker.stopping = True
        await asyncio.gather(*self._running)

    async def make_topic(self, name: str, replicas: int) -> None:
        """Create a topic with one partition and a producer that writes to it from now on."""
        admin, client = self.admin, self.client(f"producer-{name}")
        await admin.process.spawn(self.loop, admin.create_topic(name, 1, replicas))
        self.partitions.append(TopicPartition(name, 0))
        worker = Producer(client, [TopicPartition(name, 0)], pause_s=0.05)
        self.workers.append((client, worker))
        self._start(client, worker)

    async def elect_unclean(self, partition: TopicPartition) -> None:
        """Request an unclean election until the request is answered."""
        admin = self.admin
        while True:
            with suppress(Unanswered):
                await admin.process.spawn(self.loop, admin.elect_unclean(partition))
                return
            await asyncio.sleep(0.1)

    def _start(self, client: Client, worker: Worker) -> None:
        self._running.append(client.process.spawn(self.loop, worker.run()))

    def _coordinates(self, node: Node, epoch: int | None) -> None:
        self.history.add(node.name, Coordinates(GROUP, node.id, epoch))
