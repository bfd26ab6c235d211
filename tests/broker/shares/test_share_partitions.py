"""What a broker keeps about share groups: nothing that grows with the ids that clients choose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from penstock.broker.shares.group_settings import SharesConfig
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.metadata.image import TOPIC
from penstock.model.config import BrokerConfig
from penstock.shares.sessions import TopicIdPartition
from penstock.shares.shard import ShareStateKey
from penstock.shares.stats import UNUSED_MAX
from tests.broker.shares.fakes import FakeLog, Persister, Workers, leading

TOPIC_ID = bytes(16)


class Leader:
    """A broker that leads a partition of the topic `jobs`."""

    def __init__(self) -> None:
        self.image = SimpleNamespace(configs={(TOPIC, "jobs"): {"penstock.delivery.delay.ms": "7"}})
        self.persister = Persister()
        clock = SimpleNamespace(monotonic=lambda: 1.0, now_ms=lambda: 1000)
        config = SharesConfig(BrokerConfig(), self.image)  # type: ignore[arg-type]
        parts: Any = (config, clock, Workers(), self.persister, None)
        self.shares = SharePartitions(*parts)
        self.partition = leading(FakeLog(1))

    async def fetch_once(self, group: str) -> None:
        """Open a session with a first ShareFetch, and lose the connection."""
        connection = object()
        self.shares.sessions.open(group, "m", connection, [TopicIdPartition(TOPIC_ID, 0)], 10)
        self.shares.find(ShareStateKey(group, TOPIC_ID, 0), self.partition).stats.deliveries += 1
        await self.persister.idle()
        self.shares.connection_lost(connection)

    def labels(self) -> list[tuple[str, str]]:
        return [key for key, _ in self.shares.stats.current(1000)]


def run(steps: Callable[[Leader], Awaitable[None]]) -> None:
    asyncio.run(steps(Leader()))  # type: ignore[arg-type]


def test_group_ids_of_clients_leave_bounded_traces() -> None:
    async def steps(leader: Leader) -> None:
        for number in range(UNUSED_MAX + 100):
            await leader.fetch_once(f"group-{number}")
        assert len(leader.shares) == 0
        assert len(leader.labels()) == UNUSED_MAX
        assert leader.shares.config.entries == 1

    run(steps)


def test_a_deleted_topic_is_no_label_any_more_and_its_configs_are_gone() -> None:
    async def steps(leader: Leader) -> None:
        assert leader.shares.config.topic("jobs").delay_ms == 7
        await leader.fetch_once("idle")
        host = leader.shares.find(ShareStateKey("busy", TOPIC_ID, 0), leader.partition)
        await leader.persister.idle()
        assert leader.labels() == [("idle", "jobs"), ("busy", "jobs")]
        leader.image.configs.clear()
        leader.shares.metadata_changed([], [("jobs", TOPIC_ID)])
        assert leader.labels() == []
        assert host.error is not None
        assert leader.shares.config.topic("jobs").delay_ms == 0, "a new topic of this name has no delay"

    run(steps)
