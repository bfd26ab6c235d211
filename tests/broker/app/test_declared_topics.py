"""Topics that a config file declares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.app import declared_topics
from penstock.broker.app.broker import Broker
from penstock.broker.app.declared_topics import create_declared, keep_creating
from penstock.broker.app.server import system_world
from penstock.model.config import BrokerConfig, DeclaredTopic
from tests.broker.nodes import Cluster, run

GPU = DeclaredTopic("gpu", 3, 1, {"retention.ms": "5000"})


class Events:
    """What is logged, as (event, fields)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        for level in ("info", "warning", "error"):
            monkeypatch.setattr(declared_topics.log, level, self._note)

    def _note(self, event: str, **fields: object) -> None:
        self.said.append((event, fields))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    return Events(monkeypatch)


def alone(test: Callable[[Broker], Any]) -> None:
    """Run a test with a broker in memory."""

    async def life() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "penstock.memory": "true"})
        broker = await Broker.open(config, system_world(config))
        await broker.start()
        try:
            await test(broker)
        finally:
            await broker.stop()

    asyncio.run(life())


def test_missing_topics_are_created(events: Events) -> None:
    async def test(broker: Broker) -> None:
        assert await create_declared(broker, [GPU, DeclaredTopic("plain", -1, -1, {})]) == []
        assert len(broker.stages.cluster.image.topics["gpu"].partitions) == 3
        assert broker.stages.cluster.image.topic_configs("gpu") == {"retention.ms": "5000"}
        assert len(broker.stages.cluster.image.topics["plain"].partitions) == 1

    alone(test)
    assert events.said == [("topic_created", {"topic": "gpu"}), ("topic_created", {"topic": "plain"})]


def test_existing_topics_stay_and_differences_are_logged(events: Events) -> None:
    changed = DeclaredTopic("gpu", 4, 2, {"retention.ms": "6000", "compression.type": "producer"})

    async def test(broker: Broker) -> None:
        await create_declared(broker, [GPU])
        events.said.clear()
        assert await create_declared(broker, [GPU]) == []
        assert events.said == []
        assert await create_declared(broker, [changed]) == []
        assert len(broker.stages.cluster.image.topics["gpu"].partitions) == 3

    alone(test)
    assert events.said == [
        ("topic_differs", {"topic": "gpu", "setting": "partitions", "declared": 4, "actual": 3}),
        ("topic_differs", {"topic": "gpu", "setting": "replication_factor", "declared": 2, "actual": 1}),
        ("topic_differs", {"topic": "gpu", "setting": "retention.ms", "declared": "6000", "actual": "5000"}),
    ]


def test_invalid_topics_are_refused(events: Events) -> None:
    async def test(broker: Broker) -> None:
        assert await create_declared(broker, [DeclaredTopic("no/name", -1, -1, {})]) == []
        assert broker.stages.cluster.image.topics.get("no/name") is None

    alone(test)
    assert [event for event, _ in events.said] == ["topic_refused"]


def test_topics_are_spread_over_all_brokers_that_start_together(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_topics, "_PATIENCE_S", 60.0)
    wanted = DeclaredTopic("spread", 3, 1, {})

    async def test() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            await nodes.start(1, 2)
            assert await create_declared(nodes[1], [wanted]) == [wanted]
            trying = asyncio.create_task(keep_creating(nodes[1], [wanted]))
            await nodes.start(3)
            await trying
            partitions = nodes[1].stages.cluster.image.topics["spread"].partitions.values()
            assert {p.replicas[0] for p in partitions} == {1, 2, 3}
            await nodes.kill(3)
            late = DeclaredTopic("late", 1, 1, {})
            assert await create_declared(nodes[1], [late], waited_s=60.0) == []  # but not for ever
        finally:
            await nodes.close()

    run(test())
    assert events.said[0] == ("topic_waits", {"topic": "spread", "reason": "broker 3 has not started yet"})


def test_a_topic_waits_for_the_brokers_that_it_needs(events: Events) -> None:
    wanted = DeclaredTopic("wide", 2, 3, {})

    async def test() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            await nodes.start(1, 2)
            waiting = await create_declared(nodes[1], [wanted])
            assert waiting == [wanted]
            trying = asyncio.create_task(keep_creating(nodes[1], waiting))
            await nodes.start(3)
            await trying
            assert all(
                len(p.replicas) == 3 for p in nodes[1].stages.cluster.image.topics["wide"].partitions.values()
            )
        finally:
            await nodes.close()

    run(test())
    assert [event for event, _ in events.said] == ["topic_waits", "topic_created"]
