"""A coordinator that was replaced and has not heard of it: its answers are excused, and only they are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf

import pytest

from penstock.model.ids import OFFSETS_TOPIC, TopicPartition
from penstock.testing.simulation import checkers
from penstock.testing.simulation.cast import casts
from penstock.testing.simulation.clients import Unanswered
from penstock.testing.simulation.history import CommitsRead, Committed
from penstock.testing.simulation.members import GroupMember
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.scenario import GROUP, TOPIC, Options, Simulation
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER, UnregisterBrokerRequest

_SEED = 1
_CALM = replace(
    Options.draw(_SEED, 3), plot=None, operated=False, faults=0, loss=0.0, members=0, duration_s=3.0
)


class _Told(GroupMember):
    """Stores and asks where it is told to, without being a member."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.client = simulation.client("told")
        super().__init__(self.client, GROUP, TOPIC, pause_s=1.0)
        self._epoch = -1
        self._positions = {0: 0}

    async def play(self) -> None:
        """Store at the coordinator, and at the next one, of which the first hears nothing; ask the first."""
        await self.client.refresh(TOPIC)
        self.client._nodes.clear()
        await self._store(self.simulation.nodes[0])
        (cast,) = [cast for cast in casts(self.simulation.nodes) if cast.partition == self._stored_in()]
        self.simulation.loop.network.cut(cast.controller.name, cast.leader.name)
        request = UnregisterBrokerRequest(broker_id=cast.leader.id)
        await self.client.ask(cast.controller.address, UNREGISTER_BROKER, request)
        await self._store(cast.controller)
        self.client._bootstrap = [cast.leader.address]
        await self._where(0)

    def _stored_in(self) -> TopicPartition:
        broker = self.simulation.nodes[0].broker
        assert broker is not None
        return TopicPartition(OFFSETS_TOPIC, broker.groups.runtime.topic.partition_for(GROUP))

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
        return sum(isinstance(event, kind) for _, event in self.simulation.history.events)


def _run() -> Simulation:
    simulation = Simulation(_SEED, _CALM)
    told = _Told(simulation)
    simulation.loop.world_later(1.5, lambda: told.client.process.spawn(simulation.loop, told.play()))
    simulation.run()
    return simulation


def test_what_it_tells_is_excused() -> None:
    simulation = _run()
    assert simulation.violation is None
    stored = [event.offset for _, event in simulation.history.events if isinstance(event, Committed)]
    (told,) = [event.offset for _, event in simulation.history.events if isinstance(event, CommitsRead)]
    assert told < max(stored)


def test_from_anybody_else_it_would_be_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkers._GroupSeen, "_known_in", lambda *_: inf)
    violation = _run().violation
    assert violation is not None
    assert violation.name == "committed offset regressed"
