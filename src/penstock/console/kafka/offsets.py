"""Offsets of partitions: the first, the last, and those of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.console.kafka.cluster import Cluster
from penstock.console.views.samples import Key
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

__all__ = ["EARLIEST", "EARLIEST_LOCAL", "LATEST", "LATEST_TIERED", "list_offsets"]

LATEST: Final = -1
EARLIEST: Final = -2
#: of tiered storage (KIP-405, KIP-1005): the first offset on the leader's disk, the last one in the archive
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


async def list_offsets(
    cluster: Cluster, leaders: Mapping[Key, int], when: int, *, committed: bool = False
) -> dict[Key, int]:
    """The offsets of partitions by their leaders; `when` is a time in milliseconds, LATEST or EARLIEST.

    A partition whose leader has not responded is left out, and so is one without a record that late.
    `committed` ends before the first open transaction.
    """
    wanted: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for (topic, index), leader in leaders.items():
        partition = ListOffsetsPartition(partition_index=index, timestamp=when)
        wanted.setdefault(leader, {}).setdefault(topic, []).append(partition)
    requests = {
        leader: ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=name, partitions=found) for name, found in topics.items()],
            timeout_ms=int(cluster.timeout_s * 1000),
        )
        for leader, topics in wanted.items()
    }
    answers = await cluster.send_each(LIST_OFFSETS, requests)
    return {
        (topic.name, p.partition_index): p.offset
        for answer in answers.values()
        if answer is not None
        for topic in answer.topics
        for p in topic.partitions
        if not p.error_code and p.offset >= 0
    }
