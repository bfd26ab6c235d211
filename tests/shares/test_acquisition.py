"""Which records a member acquires: limits, batches, poison records, and what a load makes available."""

from __future__ import annotations

from dataclasses import replace

from penstock.shares.acquisition import AcquireRequest, FetchedBatch, acquire
from penstock.shares.partition import ShareLimits, SharePartition
from penstock.shares.states import RecordState, StateBatch

LIMITS = ShareLimits(delivery_count=5, lock_ms=10, in_flight=100)
BATCHES = [FetchedBatch(0, 9), FetchedBatch(10, 19), FetchedBatch(20, 29)]


def take(partition: SharePartition, now_ms: int = 0, **wishes: int | bool) -> list[tuple[int, int, int]]:
    request = AcquireRequest("m", 500, 500)._replace(**wishes)  # type: ignore[arg-type]
    offset = partition.next_fetch_offset(LIMITS)
    if offset is None:
        return []
    read = [b for b in BATCHES if b.last >= offset]
    return [tuple(a) for a in acquire(partition, request, offset, read, LIMITS, now_ms)]  # type: ignore[misc]


def test_whole_batches_unless_the_limit_is_strict() -> None:
    assert take(SharePartition(0), records_max=4) == [(0, 9, 1)]
    assert take(SharePartition(0), records_max=4, is_strict=True) == [(0, 3, 1)]


def test_ranges_of_about_the_batch_size() -> None:
    assert take(SharePartition(0), batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert take(SharePartition(0), batch_size=15) == [(0, 19, 1), (20, 29, 1)]


def test_the_limit_of_records_in_flight() -> None:
    partition = SharePartition(0)
    limits = replace(LIMITS, in_flight=15)
    request = AcquireRequest("m", 500, 500)
    assert acquire(partition, request, 0, BATCHES, limits, 0) == [(0, 19, 1)]
    assert partition.next_fetch_offset(limits) is None


def test_offsets_between_persisted_batches_are_delivered_again() -> None:
    state = [StateBatch(2, 4, RecordState.ACKNOWLEDGED, 1), StateBatch(8, 9, RecordState.AVAILABLE, 3)]
    partition = SharePartition.load(0, 1, state)
    assert take(partition)[:2] == [(0, 1, 1), (5, 7, 1)]


def test_batches_of_poison_records_become_smaller() -> None:
    """From half of the limit on a batch is halved, and the last delivery is of one record."""
    partition = SharePartition(0)
    sizes, now_ms = [], 0
    for _ in range(5):
        first, last, count = take(partition, now_ms, records_max=10, is_strict=True)[0]
        sizes.append((last - first + 1, count))
        now_ms += LIMITS.lock_ms
        partition.release_expired(now_ms, LIMITS)
    assert sizes == [(10, 1), (10, 2), (10, 3), (5, 4), (1, 5)]


def test_batches_without_records_are_archived() -> None:
    partition = SharePartition(0)
    read = [FetchedBatch(0, 4), FetchedBatch(5, 5, False), FetchedBatch(8, 9)]
    assert acquire(partition, AcquireRequest("m", 500, 500), 0, read, LIMITS, 0) == [(0, 4, 1), (8, 9, 1)]
    assert partition.complete == 3
