"""Committed offsets in transactions of the source, while one of the mirrored topics is promoted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.broker.links.group_mirroring import GroupMirroring
from penstock.model.ids import TopicPartition


def _is_complete(unstable: str, promoted: set[str]) -> bool:
    """Whether a comparison is complete with an offset of `unstable` in a transaction of the source."""

    async def groups() -> list[str]:
        return ["readers"]

    async def committed(group: str) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        return {}, {TopicPartition(unstable, 0)}

    async def high_watermarks(_: Any) -> dict[TopicPartition, int]:
        return {}

    topic = SimpleNamespace(partition_for=lambda group: 0)
    runtime: Any = SimpleNamespace(topic=topic, indexes=lambda: [0])
    image: Any = SimpleNamespace()
    definition: Any = SimpleNamespace(name="west", groups=SimpleNamespace(match=lambda group: True))
    source: Any = SimpleNamespace(groups=groups, committed=committed)
    mirroring = GroupMirroring(runtime, image, high_watermarks)
    mirrored = {"orders": "west.orders", "clicks": "west.clicks"}
    return asyncio.run(mirroring.compare(definition, source, mirrored, promoted))


def test_a_promotion_waits_for_the_transactions_of_its_topic_alone() -> None:
    """Applications that always have a transaction open let no other topic be promoted."""
    assert not _is_complete("orders", {"west.orders"})
    assert _is_complete("clicks", {"west.orders"})
    assert _is_complete("not mirrored", {"west.orders"})


def test_without_a_promotion_no_comparison_waits_for_transactions() -> None:
    assert _is_complete("orders", set())
