"""Clusters that are stopped while a test changes the files of a replica."""

from __future__ import annotations

from penstock.broker.replica.partition import Partition
from penstock.records.record import iter_batches, iter_records
from tests.broker.nodes import Cluster
from tests.broker.replication import stored


def values(partition: Partition) -> list[bytes]:
    """Everything that a replica has."""
    data = stored(partition)
    return [
        bytes(record.value or b"")
        for position, header in iter_batches(data)
        for record in iter_records(memoryview(data)[position : position + header.size])
    ]


async def stopped(nodes: Cluster) -> None:
    await nodes.stop_in_turn(3, 2, 1)
