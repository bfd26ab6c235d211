"""A coordinator that was replaced and has not heard of it: its answers are excused, and only they are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest

from penstock.model.ids import OFFSETS_TOPIC, TopicPartition
from penstock.testing.simulation import checkers
from penstock.testing.simulation.clients import Unanswered
from penstock.testing.simulation.cluster import GROUP, TOPIC
from penstock.testing.simulation.cluster_roles import cluster_roles
from penstock.testing.simulation.history import CommitsRead, Committed
from penstock.testing.simulation.members import GroupMember
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.scenario import Options, Simulation
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER, UnregisterBrokerRequest

_SEED = 1
_CALM = replace(
    Options.draw(_SEED, 3), directed_fault=None, operated=False, faults=0, loss=0.0, members=0, duration_s=3.0
)


class _Directed(GroupMember):
    """Commits and fetches offsets at given brokers, without being a member."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = simulation.cluster.client("directed")
        super().__init__(self.client, GROUP, TOPIC, pause_s=1.0)
        self._epoch = -1
        self._positions = {0: 0}

    async def play(self) -> None:
        """Commit at the coordinator, then at its successor, which it does not know; fetch from the first."""
        await self.client.refresh(TOPIC)
        self.client._nodes.clear()
        await self._store(self.simulation.cluster.nodes[0])
        (roles,) = [
            roles
            for roles in cluster_roles(self.simulation.cluster.nodes)
            if roles.partition == self._stored_in()
        ]
        self.simulation.cluster.loop.network.cut(roles.controller.name, roles.leader.name)
        request = UnregisterBrokerRequest(broker_id=roles.leader.id)
        await self.client.send(roles.controller.address, UNREGISTER_BROKER, request)
        await self._store(roles.controller)
        self.client._bootstrap = [roles.leader.address]
        await self._where(0)

    def _stored_in(self) -> TopicPartition:
        broker = self.simulation.cluster.nodes[0].broker
        assert broker is not None
        return TopicPartition(
            OFFSETS_TOPIC, broker.stages.coordinators.groups.runtime.topic.partition_for(GROUP)
        )

    async def _store(self, node: Node) -> None:
        """Store something further on, by the coordinator that `node` knows."""
        self.client._bootstrap = [node.address]
        stored = self._count(Committed)
        while self._count(Committed) == stored:
            try:
                await self._commit(0)
            except Unanswered:
                await asyncio.sleep(0.1)

    def _count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for _, event in self.simulation.cluster.history.events)


def _run() -> Simulation:
    simulation = Simulation(_SEED, _CALM)
    reported = _Directed(simulation)
    simulation.cluster.loop.world_later(
        1.5, lambda: reported.client.process.spawn(simulation.cluster.loop, reported.play())
    )
    simulation.run()
    return simulation


def test_its_stale_offsets_are_excused() -> None:
    simulation = _run()
    assert simulation.violation is None
    stored = [event.offset for _, event in simulation.cluster.history.events if isinstance(event, Committed)]
    (reported,) = [
        event.offset for _, event in simulation.cluster.history.events if isinstance(event, CommitsRead)
    ]
    assert reported < max(stored)


def test_an_old_offset_of_a_current_coordinator_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkers._GroupSeen, "_known_in", lambda *_: inf)
    violation = _run().violation
    assert violation is not None
    assert violation.name == "committed offset regressed"
