"""Batches and stores for the tests of archives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from random import Random
from typing import Any

from penstock.archive.building import LogState, Sealed, SegmentBuilder
from penstock.archive.chain import ManifestChain
from penstock.archive.names import BACKUP, ArchivedPartition
from penstock.archive.writing import PartitionWriter
from penstock.model.ids import TopicId
from penstock.ports import ObjectStore
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimRng

__all__ = [
    "OWNER",
    "FixedClock",
    "batch",
    "chain",
    "in_loop",
    "log_of",
    "marker",
    "new_store",
    "sealed",
    "writer",
]

OWNER = ArchivedPartition("orders", TopicId(bytes(range(16))), 3)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class FixedClock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000


def new_store(
    seed: int = 1, clock: FixedClock | None = None, faults: StoreFaults | None = None
) -> SimulatedStore:
    return SimulatedStore(Random(seed), clock or FixedClock(), asyncio.sleep, faults)


def batch(
    offset: int,
    count: int = 1,
    *,
    timestamp: int | None = None,
    epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    size: int = 10,
) -> bytes:
    """A batch whose records have the timestamps 1000 + offset, if none is given."""
    records = [
        Record(offset + n, (1000 + offset if timestamp is None else timestamp) + n, b"k", bytes(size))
        for n in range(count)
    ]
    if producer_id < 0:
        return build_batch(records, base_offset=offset, leader_epoch=epoch)
    return build_batch(
        records,
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(
    offset: int, producer_id: int, *, committed: bool, producer_epoch: int = 0, timestamp: int | None = None
) -> bytes:
    return build_end_transaction(
        EndTransaction(committed, 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=1000 + offset if timestamp is None else timestamp,
        base_offset=offset,
        leader_epoch=0,
    )


def log_of(start: int, count: int, size: int = 10) -> list[bytes]:
    """`count` batches of one to three records."""
    made, offset = [], start
    for n in range(count):
        made.append(batch(offset, 1 + n % 3, size=size, epoch=n // 10))
        offset += 1 + n % 3
    return made


def sealed(batches: list[bytes], start: int = 0, owner: ArchivedPartition = OWNER) -> Sealed:
    builder = SegmentBuilder(owner, LogState(start))
    for each in batches:
        builder.append(each, "a test")
    return builder.seal(4, bytes(8))


_seeds: Iterator[int] = iter(range(1, 1_000_000))


def chain(store: ObjectStore, owner: ArchivedPartition = OWNER, name: str = BACKUP) -> ManifestChain:
    return ManifestChain(store, "archive-id", owner, name, SimRng(Random(next(_seeds))), FixedClock())


def writer(store: SimulatedStore, *, leader_epoch: int = 0, segment_bytes: int = 2000) -> PartitionWriter:
    return PartitionWriter(
        store,
        chain(store),
        SimRng(Random(next(_seeds))),
        leader_epoch=leader_epoch,
        segment_bytes=segment_bytes,
    )
