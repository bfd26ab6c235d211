"""A log on a disk that loses power: what was flushed is there again, and what is there was written.

The power goes at every single change that a scenario makes to the disk, one run each.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from penstock.model.ids import TopicId
from penstock.records.record import iter_batches
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.amounts import is_fast
from tests.storage.logs import CLOCK, Tokens, flush, idempotent, records, stored

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
TOPIC_ID = TopicId(b"0123456789abcdef")


class Broker:
    """The least that keeps a log durable: append, flush, checkpoint; and what it may rely on afterwards."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        #: every byte that was ever appended, and how many of them were flushed
        self.written = b""
        self.flushed_bytes = 0
        self.flushed_offset = 0
        self.in_flight = memoryview(b"")
        self.sequence = 0

    def start(self) -> None:
        self.directory = DataDirectory.open(self.disk, "/data", cluster_id=None, node_id=0, rng=Tokens())
        if not self.directory.partitions():
            self.directory.create_partitions([StoredPartition("t", 0, TOPIC_ID)])
        self.log = self.directory.open_log("t", 0, CONFIG, CLOCK)

    def append(self, count: int, **fields: bool) -> None:
        batch = idempotent(self.sequence, count, value=b"%d" % self.sequence * 20, **fields)
        self.in_flight = batch
        self.log.append(batch, 0)
        self.sequence += count
        self.written += batch
        self.in_flight = memoryview(b"")

    def flush(self) -> None:
        size = len(self.written)
        flush(self.log)
        self.flushed_bytes, self.flushed_offset = size, self.log.recovery_point

    def check(self) -> None:
        """After a restart: nothing flushed is lost, nothing unwritten is there, and the log works."""
        log = self.log
        found = stored(log)
        assert not log.recovery.corruption
        assert log.end_offset >= self.flushed_offset
        assert len(found) >= self.flushed_bytes
        assert (self.written + self.in_flight).startswith(found)
        assert log.leader_epochs.latest == (0 if log.end_offset else -1)
        assert [r.offset for r in records(log)] == list(range(log.end_offset))
        for record in records(log):
            *_, (_, header) = iter_batches(log.read(record.offset, 1, upper=log.end_offset).read())  # type: ignore[union-attr]
            assert header.base_offset <= record.offset <= header.last_offset
        self._check_producer()

    def _check_producer(self) -> None:
        """The producer goes on where its log ends: one more would be a gap, the last one is a duplicate."""
        log = self.log
        state = log.producers.states.get(7)
        assert (state.last_sequence if state else -1) == log.end_offset - 1
        before = log.end_offset
        log.append(idempotent(before, 2), 0)
        assert log.append(idempotent(before, 2), 0).base_offset == before
        assert log.end_offset == before + 2


def scenario(broker: Broker) -> None:
    """Appends over several segments, flushes, checkpoints, a clean restart, and more of it."""
    broker.start()
    for i in range(12):
        broker.append(1 + i % 3)
        if i % 4 == 3:
            broker.flush()
        if i % 5 == 4:
            broker.directory.checkpoint().write()
    broker.directory.close()
    broker.flushed_bytes, broker.flushed_offset = len(broker.written), broker.log.end_offset
    broker.start()
    for i in range(8):
        broker.append(2)
        if i % 3 == 1:
            broker.flush()
            broker.directory.checkpoint().write()


def run_until_crash(seed: int, crash_at: int | None) -> Broker:
    disk = FaultyDisk(Random(seed))
    disk.makedirs("/data")
    disk.sync_dir("/")
    broker = Broker(disk)
    disk.crash_at = crash_at
    with suppress(PowerLoss):
        scenario(broker)
    return broker


def changes_of(seed: int) -> int:
    return run_until_crash(seed, None).disk.changes


#: of the changes in the fast set, each is tried with some of the seeds only
STRIDE = 3 if is_fast() else 1


@pytest.mark.parametrize("seed", range(6))
def test_the_power_may_go_at_any_change(seed: int) -> None:
    for crash_at in range(1 + seed % STRIDE, changes_of(seed) + 1, STRIDE):
        broker = run_until_crash(seed * 1_000_003 + crash_at, crash_at)
        broker.disk.restart()
        broker.start()
        broker.check()
