"""Commits of what a leader has appended: with and without syncs, and after a failed one."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.replica.commits import (
    check_enough_replicas,
    committed,
    knows_latest_offset,
    when_committed,
)
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, StorageError
from tests.broker.memory_partitions import batch, led, partition_of


def synced_leader() -> Partition:
    partition = partition_of(policy="group")
    partition.lead(3, None)
    return partition


def test_an_append_is_committed_once_the_disk_has_it() -> None:
    async def go() -> None:
        partition, codes = synced_leader(), list[ErrorCode]()
        partition.append(batch(2))
        when_committed(partition, 2, codes.append)
        assert (codes, partition.log.recovery_point) == ([], 0)
        await committed(partition, 2)
        assert (codes, partition.log.recovery_point) == ([ErrorCode.NONE], 2)

    asyncio.run(go())


def test_a_failed_sync_fails_the_commit() -> None:
    async def go() -> None:
        partition, codes = synced_leader(), list[ErrorCode]()
        partition.append(batch())
        partition.health.sync_failed(OSError(5, "input/output error"), "a disk failed")
        when_committed(partition, 1, codes.append)
        with pytest.raises(StorageError):
            await committed(partition, 1)
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]

    asyncio.run(go())


def test_an_append_to_a_single_replica_without_syncs_is_committed_at_once() -> None:
    partition, codes = led(), list[ErrorCode]()
    check_enough_replicas(partition)
    partition.append(batch())
    when_committed(partition, 1, codes.append)
    assert codes == [ErrorCode.NONE]
    assert knows_latest_offset(partition)
