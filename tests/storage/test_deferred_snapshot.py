"""Snapshots that are written after the roll: of the producers at the roll, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import FrameType

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from penstock.model.errors import StorageError
from penstock.model.steps import at_once
from penstock.storage.deferred_snapshot import DeferredSnapshot
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.sealing import read_seal
from penstock.storage.snapshot import decode_snapshot, encode_snapshot
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.amounts import amount, is_fast
from tests.storage.log_machine import LogMachine
from tests.storage.logs import NOW_MS, append_marker, flush, idempotent, marker, open_log

#: of 61 bytes and a record, so that each segment takes a few
SEGMENT_BYTES = 400
_Known = dict[int, tuple[int, int | None, list[tuple[int, ...]]]]


class Deferring:
    """A log whose rolls leave every snapshot for later."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.waiting: list[DeferredSnapshot] = []
        log.defer_snapshots(self.waiting.append, beyond=0)

    def write(self) -> None:
        """Write the oldest one."""
        finish(self.waiting.pop(0))

    def path(self, offset: int) -> str:
        return f"{self.log.path}/{offset:020d}.snapshot"


def finish(snapshot: DeferredSnapshot) -> None:
    if not snapshot.is_current():
        return
    pieces = at_once(snapshot.encode())
    snapshot.write(pieces)
    if snapshot.is_current():
        snapshot.install()
    else:
        snapshot.abandon()


def known(log: Log) -> _Known:
    return {
        producer_id: (state.epoch, state.transaction_start, [tuple(batch) for batch in state.batches])
        for producer_id, state in log.producers.items()
    }


def saved(deferring: Deferring, offset: int) -> list[ProducerState]:
    log = deferring.log
    return decode_snapshot(log.segments.active.files.read(deferring.path(offset)), log.owner, offset)


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk(Random(1))
    disk.makedirs("/data")
    disk.sync_dir("/")
    return disk


@pytest.fixture
def deferring(disk: FaultyDisk) -> Deferring:
    return Deferring(open_log(disk, segment_bytes=SEGMENT_BYTES))


def append(log: Log, producer_id: int, sequence: int, **fields: bool) -> None:
    log.append(idempotent(sequence, producer_id=producer_id, **fields), 0, guard=NO_VERIFICATION)


def fill(log: Log, rounds: int = 3, producers: int = 4) -> None:
    for sequence in range(rounds):
        for producer_id in range(producers):
            append(log, producer_id, sequence)


def test_the_snapshot_has_the_producers_of_the_roll(deferring: Deferring) -> None:
    log = deferring.log
    fill(log)
    append(log, 9, 0, transactional=True)
    log.roll()
    before, offset = known(log), log.end_offset
    expected = encode_snapshot(log.producers.states, log.owner, offset)
    while deferring.waiting[0].offset != offset:
        deferring.write()
    snapshot = deferring.waiting[0]
    assert not log.segments.active.files.exists(deferring.path(offset))
    # All that may happen to a producer: more batches, an epoch, the end of its transaction, and none at all.
    append(log, 1, 3)
    log.append(idempotent(0, producer_id=2, epoch=4), 0)
    append_marker(log, marker(False, producer_id=9))
    append(log, 77, 0)
    log.producers.expire(NOW_MS + 10, 10)
    assert known(log) != before
    finish(snapshot)
    assert log.segments.active.files.read(deferring.path(offset)) == expected


def test_a_log_opens_without_the_snapshot_and_with_it(disk: FaultyDisk, deferring: Deferring) -> None:
    log = deferring.log
    fill(log)
    assert [snapshot.offset for snapshot in deferring.waiting]
    before = known(log)
    again = open_log(disk, segment_bytes=SEGMENT_BYTES)
    assert known(again) == before
    assert again.producers.snapshot_offset == 0
    finish(deferring.waiting[0])
    again = open_log(disk, segment_bytes=SEGMENT_BYTES, recovery_point=log.segments.active.base_offset + 1)
    assert again.producers.snapshot_offset == deferring.waiting[0].offset
    assert known(again) == before
    duplicate = again.append(idempotent(0, producer_id=0), 0)
    assert duplicate.duplicate


def test_the_seal_gets_the_checksum_of_the_snapshot(disk: FaultyDisk, deferring: Deferring) -> None:
    log = deferring.log
    fill(log)
    sealed = log.segments.holding(deferring.waiting[0].offset - 1)
    seal = read_seal(disk, sealed, log.owner)
    assert seal is not None
    assert seal.snapshot is None
    finish(deferring.waiting[0])
    seal = read_seal(disk, sealed, log.owner)
    assert seal is not None
    assert seal.snapshot is not None
    path = deferring.path(seal.end_offset)
    other = encode_snapshot({}, log.owner, seal.end_offset)
    disk.write_atomic(path, other)
    again = open_log(disk, segment_bytes=SEGMENT_BYTES, recovery_point=seal.end_offset + 1)
    assert again.producers.snapshot_refused
    assert known(again) == known(log)


def test_the_cost_of_a_roll_does_not_grow_with_its_producers() -> None:
    """The snapshot of 100,000 producers took 50 ms, 180 ms with five batches of each. Counts calls."""
    log = open_log()
    deferring = Deferring(log)
    for producer_id in range(3000):
        append(log, producer_id, 0)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += "call" in event

    sys.setprofile(count)
    try:
        log.roll()
    finally:
        sys.setprofile(None)
    assert len(deferring.waiting) == 1
    assert calls < 1000
    steps = deferring.waiting[0].encode()
    assert len(list(steps)) > 10, "it is encoded in steps"


def test_one_snapshot_is_deferred_at_a_time(deferring: Deferring) -> None:
    log = deferring.log
    fill(log, rounds=6)
    bases = [segment.base_offset for segment in log.segments][1:]
    assert len(bases) > 2
    assert [snapshot.offset for snapshot in deferring.waiting] == bases[:1]
    log.roll()
    deferring.write()
    # Nothing was appended since the last roll, so its snapshot can still be made.
    assert [snapshot.offset for snapshot in deferring.waiting] == [log.end_offset]
    deferring.write()
    assert len(saved(deferring, log.end_offset)) == 4


def _truncate(log: Log) -> None:
    log.truncate_to(log.segments.active.base_offset - 1)


def _reset(log: Log) -> None:
    log.reset_to(100)


def _close(log: Log) -> None:
    log.close(clean=False)


@pytest.mark.parametrize("change", [_truncate, _reset, _close])
@pytest.mark.parametrize("stage", ["encoded", "written"])
def test_a_snapshot_of_other_batches_is_not_installed(
    disk: FaultyDisk, deferring: Deferring, change: Callable[[Log], None], stage: str
) -> None:
    log = deferring.log
    fill(log)
    while deferring.waiting[0].offset != log.segments.active.base_offset:
        log.roll()
        deferring.write()
    snapshot = deferring.waiting[0]
    pieces = at_once(snapshot.encode())
    if stage == "written":
        snapshot.write(pieces)
    change(log)
    assert not snapshot.is_current()
    snapshot.abandon()
    assert not [name for name in disk.listdir(log.path) if "deferred" in name]
    assert not disk.exists(snapshot.path)


def test_a_later_roll_writes_a_snapshot_after_a_failed_one(
    disk: FaultyDisk, deferring: Deferring, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = deferring.log
    fill(log)
    snapshot = deferring.waiting.pop()
    pieces = at_once(snapshot.encode())
    monkeypatch.setattr(disk, "open", _no_space)
    with pytest.raises(StorageError, match="No space"):
        snapshot.write(pieces)
    monkeypatch.undo()
    snapshot.abandon()
    assert log.health.full is not None
    fill_from = 3
    for sequence in range(fill_from, fill_from + 3):
        append(log, 0, sequence)
    log.roll()
    assert deferring.waiting
    finish(deferring.waiting[0])
    assert disk.exists(deferring.path(deferring.waiting[0].offset))


def _no_space(path: str, *, create: bool = False) -> None:
    raise OSError(28, "No space left on device", path)


def test_a_snapshot_that_a_crash_left_unnamed_is_removed(disk: FaultyDisk, deferring: Deferring) -> None:
    fill(deferring.log)
    snapshot = deferring.waiting[0]
    snapshot.write(at_once(snapshot.encode()))
    assert [name for name in disk.listdir(deferring.log.path) if "deferred" in name]
    open_log(disk, segment_bytes=SEGMENT_BYTES)
    assert not [name for name in disk.listdir(deferring.log.path) if "deferred" in name]
    assert not disk.exists(snapshot.path)


@pytest.mark.parametrize("restarted", [False, True])
def test_retention_keeps_the_batches_that_have_no_snapshot_behind_them(
    disk: FaultyDisk, restarted: bool
) -> None:
    """Without them, a crash would forget the producers that wrote nothing since."""
    log = open_log(disk, segment_bytes=SEGMENT_BYTES)
    deferring = Deferring(log)
    append(log, 5, 0)
    fill(log)
    log.advance_high_watermark(log.end_offset)
    before = known(log)
    if restarted:
        flush(log)
        log = open_log(disk, segment_bytes=SEGMENT_BYTES, recovery_point=log.end_offset)
        log.advance_high_watermark(log.end_offset)
    first = log.segments.first
    log.start_at(log.segments.active.base_offset)
    assert log.retention.remove_expired() == []
    assert log.segments.first is first
    assert known(open_log(disk, segment_bytes=SEGMENT_BYTES)) == before
    if restarted:
        deferring = Deferring(log)
        log.roll()
        log.start_at(log.end_offset)
    while deferring.waiting:
        deferring.write()
        log.roll()
        log.start_at(log.segments.active.base_offset)
    assert log.retention.remove_expired()
    assert log.segments.first.base_offset > 0
    assert known(open_log(disk, segment_bytes=SEGMENT_BYTES))[5] == before[5]


def run(disk: FaultyDisk) -> list[int]:
    """Appends of five producers with snapshots that are written between them; the sequences acknowledged."""
    acknowledged = [0] * 5
    with suppress(PowerLoss):
        deferring = Deferring(open_log(disk, segment_bytes=SEGMENT_BYTES))
        flush(deferring.log)
        for number in range(30):
            producer_id = number % 3 if number > 10 else number % 5
            append(deferring.log, producer_id, acknowledged[producer_id])
            if number % 2:
                flush(deferring.log)
            acknowledged[producer_id] += 1
            if number % 4 == 3 and deferring.waiting:
                deferring.write()
    return acknowledged


@pytest.mark.parametrize("power_loss", [False, True])
def test_duplicates_are_known_whenever_the_process_ends(power_loss: bool) -> None:
    stride = 3 if is_fast() else 1

    def new() -> FaultyDisk:
        disk = FaultyDisk(Random(3))
        disk.makedirs("/data/topics/t/partition-0")
        for path in ("/", "/data", "/data/topics", "/data/topics/t"):
            disk.sync_dir(path)
        return disk

    whole = new()
    run(whole)
    for crash_at in range(1, whole.changes + 1, stride):
        disk = new()
        disk.crash_at = crash_at
        acknowledged = run(disk)
        disk.restart(power_loss=power_loss)
        log = open_log(disk, segment_bytes=SEGMENT_BYTES)
        for producer_id, sequences in enumerate(acknowledged):
            state = log.producers.states.get(producer_id)
            found = state.last_sequence + 1 if state else 0
            if not power_loss:
                assert found >= sequences
            for sequence in range(max(found - 5, 0), found):
                assert log.append(idempotent(sequence, producer_id=producer_id), 0).duplicate
        ends = [log.producers.states[p].last_sequence + 1 for p in range(5) if p in log.producers.states]
        assert sum(ends) == log.end_offset


class DeferringMachine(LogMachine):
    """The log of the machine, whose snapshots are written at any later time, or never."""

    def open(self) -> None:
        super().open()
        self.waiting: list[DeferredSnapshot] = []
        self.written: DeferredSnapshot | None = None
        self.log.defer_snapshots(self.waiting.append, beyond=0)

    @rule()
    def write_snapshot(self) -> None:
        def work() -> None:
            snapshot, self.written = self.waiting.pop(0), None
            if snapshot.is_current():
                self.written = snapshot
                snapshot.write(at_once(snapshot.encode()))

        if self.waiting and self.written is None:
            self.do(work)

    @rule()
    def install_snapshot(self) -> None:
        def work() -> None:
            snapshot, self.written = self.written, None
            assert snapshot is not None
            if snapshot.is_current():
                snapshot.install()
            else:
                snapshot.abandon()

        if self.written is not None:
            self.do(work)


TestDeferringMachine = DeferringMachine.TestCase
TestDeferringMachine.settings = settings(
    max_examples=amount(80), stateful_step_count=50, deadline=None, derandomize=True
)
