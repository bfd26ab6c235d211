"""The fetch of a client from one partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.fetch import partition_read
from penstock.broker.fetch.partition_read import FetchLimits, read_partition
from penstock.broker.fetch.sessions import WantedPartition
from penstock.model.errors import NotLeaderOrFollower, OffsetOutOfRange, RemoteReadFailed, StorageError
from penstock.storage.log import Log
from tests.broker.memory_partitions import batch, led, partition_of

LIMITS = FetchLimits(1 << 20, committed=False)


def wanted(offset: int) -> WantedPartition:
    return WantedPartition("t", 0, offset, 1 << 20, -1, -1)


def test_records_below_the_high_watermark_are_read() -> None:
    partition = led()
    partition.append(batch(3))
    answer = read_partition(partition, wanted(0), 1 << 20, LIMITS, at_least_one=True)
    assert (answer.high_watermark, answer.records is not None) == (3, True)
    end = read_partition(partition, wanted(3), 1 << 20, LIMITS, at_least_one=True)
    assert (end.high_watermark, end.records) == (3, b"")


def test_an_offset_beyond_the_end_is_out_of_range() -> None:
    partition = led()
    with pytest.raises(OffsetOutOfRange):
        read_partition(partition, wanted(5), 0, LIMITS, at_least_one=False)


def test_a_follower_refuses_a_fetch_from_the_leader() -> None:
    partition = partition_of()
    partition.follow(3)
    with pytest.raises(NotLeaderOrFollower):
        read_partition(partition, wanted(0), 1 << 20, LIMITS, at_least_one=True)


def fail_reads(monkeypatch: pytest.MonkeyPatch, folder: str | None = None) -> None:
    """Have reads fail of a file in `folder`, or in that of the log."""

    def fail() -> bytes:
        raise OSError(5, "input/output error")

    def found(log: Log, *args: Any, **options: Any) -> Any:
        return SimpleNamespace(size=100, read=fail, file=SimpleNamespace(path=f"{folder or log.path}/0"))

    monkeypatch.setattr(partition_read, "newest_within", lambda *args: None)
    monkeypatch.setattr(Log, "read", found)


def test_a_failed_read_takes_the_data_directory_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = led()
    partition.append(batch(3))
    fail_reads(monkeypatch)
    with pytest.raises(StorageError):
        read_partition(partition, wanted(0), 1 << 20, LIMITS, at_least_one=True)
    assert not partition.is_online


def test_a_failed_read_of_the_cache_of_an_archive_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = led()
    partition.append(batch(3))
    fail_reads(monkeypatch, "/tmp")
    with pytest.raises(RemoteReadFailed):
        read_partition(partition, wanted(0), 1 << 20, LIMITS, at_least_one=True)
    assert partition.is_online
