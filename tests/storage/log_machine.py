"""A log against a model that is a list of batches, on a disk that may lose power at any moment.

After every step the log must answer as the list does: bytes, offsets, timestamps, leader epochs, producers,
transactions. After a crash it must hold a beginning of something that it has held since the last flush, and
all that was flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.model.ids import TopicId
from penstock.records.batch import BatchHeader
from penstock.records.control import parse_end_transaction
from penstock.records.record import Record, iter_batches, iter_records
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.storage.logs import (
    CLOCK,
    NOW_MS,
    Tokens,
    append_marker,
    flush,
    idempotent,
    marker,
    record_at_or_after,
    stored,
)

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_bytes=4000)


class Batch(NamedTuple):
    data: bytes
    header: BatchHeader

    @property
    def records(self) -> list[Record]:
        return list(iter_records(self.data))


class Facts:
    """What a list of batches says about producers and transactions."""

    def __init__(self, batches: list[Batch]) -> None:
        self.last_sequences: dict[int, int] = {}
        self.ongoing: dict[int, int] = {}
        self.aborted: list[tuple[int, int]] = []
        for batch in batches:
            header = batch.header
            if header.is_control:
                marker = parse_end_transaction(batch.data)
                first = self.ongoing.pop(header.producer_id, None)
                if marker is not None and first is not None and not marker.committed:
                    self.aborted.append((header.producer_id, first))
            else:
                self.last_sequences[header.producer_id] = header.last_sequence
                if header.is_transactional:
                    self.ongoing.setdefault(header.producer_id, header.base_offset)


class LogMachine(RuleBasedStateMachine):
    disk: FaultyDisk
    directory: DataDirectory
    log: Log

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = FaultyDisk(Random(seed))
        self.disk.makedirs("/data")
        self.disk.sync_dir("/")
        self.epoch = 0
        self.batches: list[Batch] = []
        #: what the log has held since the last flush, and what of it must survive
        self.timelines: list[list[Batch]] = [[]]
        self.flushed_to = 0
        self.log_start = 0
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory.open(self.disk, "/data", cluster_id=None, node_id=0, rng=Tokens())
        if not self.directory.partitions():
            self.directory.create_partitions([StoredPartition("t", 0, TopicId(bytes(range(16))))])
        self.log = self.directory.open_log("t", 0, CONFIG, CLOCK)
        self.log.advance_high_watermark(self.log.end_offset)

    # -- steps

    @rule(
        count=st.integers(1, 4),
        producer_id=st.integers(1, 2),
        transactional=st.booleans(),
        timestamp=st.integers(0, 1000),
        size=st.integers(0, 300),
    )
    def append(self, count: int, producer_id: int, transactional: bool, timestamp: int, size: int) -> None:
        state = self.log.producers.states.get(producer_id)
        batch = idempotent(
            state.last_sequence + 1 if state else 0,
            count,
            producer_id=producer_id,
            value=bytes(size),
            timestamp=NOW_MS + timestamp,
            # a producer with an open transaction must stay in it
            transactional=transactional or (state is not None and state.transaction_start is not None),
        )
        self.do(lambda: self.log.append(batch, self.epoch, guard=NO_VERIFICATION), adds=batch)

    @rule(producer_id=st.integers(1, 2), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        if producer_id in Facts(self.batches).ongoing:
            batch = marker(committed, producer_id=producer_id)
            self.do(lambda: append_marker(self.log, batch, self.epoch), adds=batch)

    @rule()
    def flush(self) -> None:
        def work() -> None:
            flush(self.log)
            self.flushed_to = end_of(self.batches)
            self.timelines = [self.batches]

        self.do(work)

    @rule()
    def checkpoint(self) -> None:
        self.do(lambda: self.directory.checkpoint().write())

    @rule()
    def roll(self) -> None:
        self.do(lambda: self.log.roll())

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(self.log.high_watermark * share)

        def work() -> None:
            self.log_start = max(self.log_start, offset)
            assert self.log.delete_records(offset) == self.log_start

        self.do(work)

    @rule()
    def retain(self) -> None:
        def work() -> None:
            removals = self.log.retention.apply(NOW_MS + 1000)
            self.log_start = self.log.log_start_offset
            for removal in removals:
                removal.delete()

        self.do(work)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """A new leader has less than we have; what it writes comes with its epoch."""
        start = self.log.log_start_offset
        target = start + int((self.log.end_offset - start) * share)
        if target >= self.log.end_offset:
            return
        kept = [batch for batch in self.batches if batch.header.last_offset < target]
        if end_of(kept) <= start:
            kept = []
        self.flushed_to = min(self.flushed_to, end_of(kept))
        self.epoch += 1

        def work() -> None:
            self.log.truncate_to(target)
            self.batches = kept
            self.timelines.append(kept)

        self.do(work)

    @rule()
    def restart_cleanly(self) -> None:
        def work() -> None:
            self.directory.close()
            self.flushed_to = end_of(self.batches)
            self.timelines = [self.batches]
            self.open()
            assert self.log.recovery.clean

        self.do(work)

    @rule(changes=st.integers(1, 60))
    def lose_power_soon(self, changes: int) -> None:
        self.disk.crash_at = self.disk.changes + changes

    @rule()
    def lose_power(self) -> None:
        self.crash(power_loss=True)

    @rule()
    def kill(self) -> None:
        self.crash(power_loss=False)

    def do(self, work: Callable[[], object], adds: memoryview | None = None) -> None:
        """Carry out a step; if the power goes on the way, start again with what is left."""
        try:
            work()
        except PowerLoss:
            if adds is not None:
                # Stamped in place: it is known even if the append did not return.
                self.timelines.append([*self.batches, *parse(bytes(adds))])
            self.crash(power_loss=True)
        else:
            if adds is not None:
                self.batches = [*self.batches, *parse(bytes(adds))]
                self.timelines.append(self.batches)
            self.log.advance_high_watermark(self.log.end_offset)

    def crash(self, power_loss: bool) -> None:
        crash_at = self.disk.crash_at
        # Retention and DeleteRecords may have saved the log start before the power went.
        self.log_start = max(self.log_start, self.log.log_start_offset)
        self.disk.restart(power_loss=power_loss)
        if crash_at is not None and self.disk.changes < crash_at:
            self.disk.crash_at = crash_at
        try:
            self.open()
        except PowerLoss:
            # It went again while the log was recovering.
            self.crash(power_loss=True)
            return
        self.adopt_survivors(power_loss)

    def adopt_survivors(self, power_loss: bool) -> None:
        log = self.log
        start = log.log_start_offset
        found = parse(stored(log))
        assert not log.recovery.corruption
        assert log.end_offset >= self.flushed_to
        assert start <= self.log_start
        matching = [t for t in self.timelines if from_offset(t, start)[: len(found)] == found]
        assert matching, f"{len(found)} batches that were never there together"
        whole = matching[-1][: len(matching[-1]) - len(from_offset(matching[-1], start)) + len(found)]
        self.batches = whole
        self.log_start = start
        if power_loss:
            self.timelines = [whole]
            self.flushed_to = end_of(whole)
        else:
            self.timelines.append(whole)

    # -- what must hold

    @invariant()
    def bytes_are_those_appended(self) -> None:
        log = self.log
        assert parse(stored(log)) == from_offset(self.batches, log.log_start_offset)
        assert log.log_start_offset == self.log_start

    @invariant()
    def every_offset_is_found_in_its_batch(self) -> None:
        log = self.log
        for batch in from_offset(self.batches, log.log_start_offset):
            header = batch.header
            for offset in {max(header.base_offset, log.log_start_offset), header.last_offset}:
                found = log.read(offset, 1, upper=log.end_offset)
                assert found is not None
                assert found.read() == batch.data
                bounded = log.read(offset, 1 << 20, upper=header.next_offset)
                assert bounded is not None
                assert bounded.read() == batch.data

    @invariant()
    def producers_and_transactions_are_known(self) -> None:
        log, facts = self.log, Facts(self.batches)
        if self.log_start == 0:
            # What producers did in a part that is gone may be known or not.
            assert {p: s.last_sequence for p, s in log.producers.items()} == facts.last_sequences
            assert {s.transaction_start for s in log.producers.states.values()} - {None} == set(
                facts.ongoing.values()
            )
            assert sorted(log.aborted_transactions(0, log.end_offset)) == sorted(facts.aborted)
            assert log.last_stable_offset == min(facts.ongoing.values(), default=log.end_offset)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        for batch in from_offset(self.batches, self.log_start):
            offset = max(batch.header.base_offset, self.log_start)
            assert self.log.leader_epochs.epoch_of(offset) == batch.header.leader_epoch

    @invariant()
    def timestamps_find_the_first_record(self) -> None:
        log = self.log
        records = [r for b in self.batches for r in b.records if r.offset >= log.log_start_offset]
        for wanted in (NOW_MS, NOW_MS + 250, NOW_MS + 500, NOW_MS + 2000):
            expected = next((r for r in records if r.timestamp >= wanted), None)
            found = record_at_or_after(log, wanted)
            assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))


def parse(data: bytes) -> list[Batch]:
    return [Batch(data[at : at + header.size], header) for at, header in iter_batches(data)]


def end_of(batches: list[Batch]) -> int:
    return batches[-1].header.next_offset if batches else 0


def from_offset(batches: list[Batch], offset: int) -> list[Batch]:
    return [batch for batch in batches if batch.header.last_offset >= offset]
