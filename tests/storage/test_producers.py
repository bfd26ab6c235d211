"""Idempotent producers: duplicates, gaps, epochs, expiry, and what survives a restart."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
)
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import PastBatch, ProducerState
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.storage.snapshot import SnapshotDamaged, decode_snapshot, encode_snapshot
from tests.storage.logs import NOW_MS, StillClock, append_marker, batch, idempotent, marker, open_log

SEQUENCE_MAX = 2**31 - 1


def with_batches(*counts: int, files: MemoryFiles | None = None) -> Log:
    log = open_log(files)
    sequence = 0
    for count in counts:
        log.append(idempotent(sequence, count), 0)
        sequence += count
    return log


@pytest.mark.parametrize(
    ("sequence", "count", "offset"), [(0, 2, 0), (2, 3, 2), (5, 1, 5), (6, 4, 6), (10, 2, 10)]
)
def test_each_of_the_last_five_batches_is_answered_with_its_offset(
    sequence: int, count: int, offset: int
) -> None:
    log = with_batches(2, 3, 1, 4, 2)
    again = log.append(idempotent(sequence, count), 0)
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (offset, offset + count - 1)
    assert log.end_offset == 12


def test_a_batch_before_the_last_five_is_out_of_order() -> None:
    log = with_batches(1, 1, 1, 1, 1, 1)
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(0, 1), 0)


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (2, 2), (1, 2), (0, 1)])
def test_a_gap_and_an_overlap_are_out_of_order(sequence: int, count: int) -> None:
    log = with_batches(2, 1)
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(sequence, count), 0)
    assert log.end_offset == 3
    assert log.append(idempotent(3), 0).base_offset == 3


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    log = open_log()
    assert not log.append(idempotent(500, 2), 0).duplicate
    assert log.append(idempotent(502), 0).base_offset == 2


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    log = with_batches(3)
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(3, epoch=1), 0)
    log.append(idempotent(0, epoch=1), 0)
    with pytest.raises(InvalidProducerEpoch):
        log.append(idempotent(3, epoch=0), 0)
    assert log.append(idempotent(1, epoch=1), 0).base_offset == 4


def test_sequences_wrap_to_zero() -> None:
    log = open_log()
    log.append(idempotent(SEQUENCE_MAX - 1, 2), 0)
    log.append(idempotent(0, 2), 0)
    assert log.append(idempotent(SEQUENCE_MAX - 1, 2), 0).duplicate
    log.append(idempotent(2), 0)
    wrapping = open_log()
    wrapping.append(idempotent(SEQUENCE_MAX, 3), 0)
    assert wrapping.producers.states[7].last_sequence == 1
    assert wrapping.append(idempotent(SEQUENCE_MAX, 3), 0).duplicate
    assert wrapping.append(idempotent(2), 0).base_offset == 3


def test_producers_do_not_mix() -> None:
    log = with_batches(2)
    log.append(idempotent(0, producer_id=8), 0)
    log.append(idempotent(2), 0)
    log.append(idempotent(1, producer_id=8), 0)
    assert {p: s.last_sequence for p, s in log.producers.items()} == {7: 2, 8: 1}


def test_a_refused_batch_leaves_no_trace_in_the_state() -> None:
    log = with_batches(2)
    damaged = idempotent(2)
    damaged[-1] ^= 1
    with pytest.raises(ApiError):
        log.append(damaged, 0)
    assert log.append(idempotent(2), 0).base_offset == 2


def test_a_duplicate_gets_the_timestamp_of_the_original() -> None:
    clock = StillClock()
    log = open_log(clock=clock, message_timestamp_type="LogAppendTime")
    log.append(idempotent(0), 0)
    clock.ms += 5000
    assert log.append(idempotent(0), 0).append_time_ms == NOW_MS


def test_the_group_coordinator_has_no_sequences() -> None:
    log = with_batches(2)
    for _ in range(2):
        log.append(batch(producer_id=7, producer_epoch=0), 0, AppendOrigin.COORDINATOR)
    assert log.end_offset == 4
    with pytest.raises(InvalidProducerEpoch):
        log.append(batch(producer_id=7, producer_epoch=-1), 0, AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("clean", [True, False])
def test_state_survives_a_restart(clean: bool) -> None:
    files = MemoryFiles()
    log = with_batches(2, 3, 1, files=files)
    log.roll()
    log.append(idempotent(6, 4), 0)
    log.close(clean=clean)
    again = open_log(files, clean=clean)
    assert again.append(idempotent(2, 3), 0).base_offset == 2
    assert again.append(idempotent(6, 4), 0).base_offset == 6
    with pytest.raises(OutOfOrderSequence):
        again.append(idempotent(11), 0)
    assert again.append(idempotent(10), 0).base_offset == 10


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    clock = StillClock()
    log = open_log(clock=clock)
    log.append(idempotent(0, producer_id=1), 0)
    log.append(idempotent(0, producer_id=2, transactional=True), 0, guard=NO_VERIFICATION)
    log.append(idempotent(0, producer_id=3, timestamp=NOW_MS + 1), 0)
    log.producers.expire(NOW_MS + 1000, 1000)
    assert set(log.producers.states) == {2, 3}
    assert log.append(idempotent(5, producer_id=1), 0).base_offset == 3


def test_no_producer_is_forgotten_while_a_log_is_loaded() -> None:
    """The wall clock may be wrong by days, and a retried batch would be appended twice."""
    files = MemoryFiles()
    with_batches(1, files=files).close()
    later = StillClock(NOW_MS + 8 * 24 * 60 * 60 * 1000)
    assert open_log(files, clean=True, clock=later).producers.states


# -- transactions


def test_a_marker_needs_a_coordinator_that_is_not_older_than_the_last() -> None:
    log = open_log()
    log.append(idempotent(0, transactional=True), 0, guard=NO_VERIFICATION)
    append_marker(log, marker(True, coordinator_epoch=3))
    with pytest.raises(ApiError) as raised:
        append_marker(log, marker(True, coordinator_epoch=2))
    assert raised.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    append_marker(log, marker(True, coordinator_epoch=3))


def test_a_marker_of_an_old_producer_epoch_is_refused() -> None:
    log = open_log()
    log.append(idempotent(0, epoch=5, transactional=True), 0, guard=NO_VERIFICATION)
    with pytest.raises(InvalidProducerEpoch):
        append_marker(log, marker(True, epoch=4))


def test_an_open_transaction_takes_transactional_batches_only() -> None:
    log = open_log()
    log.append(idempotent(0, transactional=True), 0, guard=NO_VERIFICATION)
    with pytest.raises(InvalidTxnState):
        log.append(idempotent(1), 0)
    append_marker(log, marker(True))
    assert log.append(idempotent(1), 0).base_offset == 2


def test_the_next_epoch_after_a_marker_starts_at_zero() -> None:
    """KIP-890: the coordinator ends a transaction with the producer's next epoch."""
    log = open_log()
    log.append(idempotent(0, 3, transactional=True), 0, guard=NO_VERIFICATION)
    append_marker(log, marker(True, epoch=1))
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(3, epoch=1), 0)
    assert log.append(idempotent(0, epoch=1), 0).base_offset == 4


# -- snapshots


def test_a_snapshot_brings_everything_back() -> None:
    states = {
        1: ProducerState(1, 2, 3, NOW_MS, 40, [PastBatch(9, 41, 1, NOW_MS), PastBatch(12, 44, 2, NOW_MS)]),
        2: ProducerState(2, 0, -1, 5, None, []),
    }
    for state in decode_snapshot(encode_snapshot(states, NO_OWNER, 45)):
        original = states.pop(state.producer_id)
        assert (state.epoch, state.coordinator_epoch, state.last_timestamp, state.transaction_start) == (
            original.epoch,
            original.coordinator_epoch,
            original.last_timestamp,
            original.transaction_start,
        )
        assert state.batches == original.batches
    assert not states


def test_a_snapshot_as_kafka_writes_it() -> None:
    """Id, epoch, last sequence, offset and delta, timestamp, coordinator epoch, start of the transaction."""
    body = bytes.fromhex(
        "00000001"
        "0000000000000007 0002 00000009 0000000000000029 00000001 0000018bcfe56800 00000003 ffffffffffffffff"
    )
    (state,) = decode_snapshot(b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body)
    assert (state.producer_id, state.epoch, state.coordinator_epoch) == (7, 2, 3)
    assert state.batches == [PastBatch(9, 41, 1, NOW_MS)]
    assert state.transaction_start is None


@pytest.mark.parametrize("states", [{}, {1: ProducerState(1, 0, -1, NOW_MS, None, [])}])
def test_a_snapshot_of_another_partition_or_offset_is_refused(states: dict[int, ProducerState]) -> None:
    snapshot = encode_snapshot(states, LogOwner("topic", 3), 7)
    assert len(decode_snapshot(snapshot, LogOwner("topic", 3), 7)) == len(states)
    assert len(decode_snapshot(snapshot)) == len(states), "a tool does not know the owner"
    for owner, offset in ((LogOwner("topic", 4), 7), (LogOwner("other", 3), 7), (LogOwner("topic", 3), 8)):
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(snapshot, owner, offset)


def test_a_damaged_snapshot_is_noticed() -> None:
    states = {1: ProducerState(1, 0, -1, NOW_MS, None, [PastBatch(0, 0, 0, NOW_MS)])}
    good = encode_snapshot(states, LogOwner("i", 0), 1)
    for bad in (b"", good[:-1], good[:8], b"\x00\x07" + good[2:], good[:-1] + b"\xff"):
        with pytest.raises(SnapshotDamaged):
            decode_snapshot(bad)


def test_the_log_makes_up_for_a_damaged_snapshot() -> None:
    files = MemoryFiles()
    log = with_batches(2, 3, files=files)
    log.roll()
    log.append(idempotent(5), 0)
    log.close()
    for name in files.listdir(log.path):
        if name.endswith(".snapshot"):
            file = files.open(f"{log.path}/{name}")
            file.pwrite(b"\xff", file.size() - 1)
    again = open_log(files, clean=True)
    assert again.producers.states[7].last_sequence == 5


def test_a_snapshot_from_before_a_truncation_is_ignored_after_a_crash() -> None:
    """It was removed as the log was cut; the power went before the disk had heard of that."""
    files = MemoryFiles()
    with_batches(1, 1, files=files).close()
    log = open_log(files, clean=True)
    path = f"{log.path}/{2:020}.snapshot"
    snapshot = files.read(path)
    log.truncate_to(1)
    log.append(idempotent(0, producer_id=8), 1)
    files.write_atomic(path, snapshot)
    open_log(files).close()
    again = open_log(files, clean=True)
    assert {number: state.last_sequence for number, state in again.producers.items()} == {7: 0, 8: 0}


def test_producers_of_mirrored_records_are_forgotten() -> None:
    """A producer with the same id starts anew; one that has written since goes on."""
    log = with_batches(2, 3)
    log.producers.forget_before(4, without_batches=False)
    assert log.append(idempotent(0, 2), 0).duplicate
    log.producers.forget_before(5, without_batches=False)
    assert not log.append(idempotent(0, 2), 0).duplicate
    log.producers.forget_before(5, without_batches=True)
    assert log.append(idempotent(0, 2), 0).duplicate
