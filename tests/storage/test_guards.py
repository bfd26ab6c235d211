"""Verification guards (KIP-890): transactional batches need one, and any append or marker removes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.errors import ApiError, InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from penstock.storage.guards import NO_VERIFICATION, VerificationGuard
from penstock.storage.log import AppendOrigin, Log
from tests.storage.logs import NOW_MS, append_marker, batch, idempotent, marker, open_log

PRODUCER = 7


def start(log: Log, epoch: int = 0, sequence: int = 0, *, adds: bool = False) -> VerificationGuard:
    guard = log.producers.start_verification(PRODUCER, epoch, sequence, adds, NOW_MS)
    assert guard is not None
    return guard


def transactional(sequence: int, epoch: int = 0) -> memoryview:
    return idempotent(sequence, epoch=epoch, transactional=True)


def test_a_transactional_batch_needs_a_guard() -> None:
    log = open_log()
    with pytest.raises(InvalidTxnState):
        log.append(transactional(0), 0)
    start(log)
    with pytest.raises(InvalidTxnState):
        log.append(transactional(0), 0)
    with pytest.raises(InvalidTxnState):
        log.append(transactional(0), 0, guard=VerificationGuard(0, 0, False, NOW_MS))
    assert log.end_offset == 0


def test_only_the_first_batch_of_a_transaction_needs_one() -> None:
    log = open_log()
    log.append(transactional(0), 0, guard=start(log))
    assert log.producers.start_verification(PRODUCER, 0, 1, False, NOW_MS) is None
    log.append(transactional(1), 0)
    append_marker(log, marker(True))
    with pytest.raises(InvalidTxnState):
        log.append(transactional(2), 0)
    log.append(transactional(2), 0, guard=start(log, sequence=2))
    assert log.end_offset == 4


def test_all_batches_that_wait_share_a_guard() -> None:
    log = open_log()
    assert start(log, sequence=1) is start(log, sequence=0)


@pytest.mark.parametrize(
    "between",
    [
        lambda log: append_marker(log, marker(False)),
        lambda log: log.append(transactional(0), 0, guard=start(log)) and append_marker(log, marker(True)),
    ],
    ids=["marker", "append and marker"],
)
def test_a_guard_is_of_no_use_behind_a_marker(between: Callable[[Log], object]) -> None:
    """The answer of the coordinator may come after the transaction has ended, and another has begun."""
    log = open_log()
    stale = start(log)
    between(log)
    assert start(log, sequence=1) is not stale
    with pytest.raises(InvalidTxnState):
        log.append(transactional(1), 0, guard=stale)


def test_a_replicated_marker_removes_the_guard() -> None:
    log, leader = open_log(), open_log()
    stale = start(log)
    append_marker(leader, end := marker(False))
    log.append_replicated(end)
    with pytest.raises(InvalidTxnState):
        log.append(transactional(0), 0, guard=stale)


def test_a_marker_with_the_next_epoch_keeps_the_guard_of_the_next_transaction() -> None:
    """With transaction.version 2 the producer goes on before the markers are written."""
    log = open_log()
    log.append(transactional(0), 0, guard=start(log, adds=True))
    guard = start(log, epoch=1, adds=True)
    append_marker(log, marker(True, epoch=1))
    assert log.append(transactional(0, epoch=1), 0, guard=guard).base_offset == 2


def test_a_marker_with_the_same_epoch_removes_it_with_version_1() -> None:
    log = open_log()
    guard = start(log, epoch=1)
    append_marker(log, marker(True, epoch=1))
    with pytest.raises(InvalidTxnState):
        log.append(transactional(0, epoch=1), 0, guard=guard)


def test_a_retry_is_answered_before_the_guard_is_checked() -> None:
    log = open_log()
    log.append(transactional(0), 0, guard=start(log))
    append_marker(log, marker(True))
    again = log.append(transactional(0), 0)
    assert again.duplicate
    assert again.base_offset == 0


def test_an_old_epoch_is_refused_before_verification() -> None:
    log = open_log()
    log.append(transactional(0, epoch=3), 0, guard=start(log, epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        start(log, epoch=2)
    append_marker(log, marker(True, epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        log.append(transactional(1, epoch=3), 0)


def test_a_later_sequence_does_not_overtake_one_whose_verification_failed() -> None:
    log = open_log()
    start(log, sequence=0)
    guard = start(log, sequence=1)
    with pytest.raises(OutOfOrderSequence):
        log.append(transactional(1), 0, guard=guard)
    log.append(transactional(0), 0, guard=guard)


def test_the_lowest_sequence_starts_anew_with_an_epoch() -> None:
    log = open_log()
    start(log, epoch=0, sequence=0)
    guard = start(log, epoch=1, sequence=4)
    assert guard.lowest_sequence == 4
    log.append(transactional(4, epoch=1), 0, guard=guard)


def test_version_2_starts_at_sequence_0() -> None:
    log = open_log()
    with pytest.raises(OutOfOrderSequence):
        log.append(transactional(3), 0, guard=start(log, sequence=3, adds=True))
    other = open_log()
    assert other.append(transactional(3), 0, guard=start(other, sequence=3)).base_offset == 0


def test_a_coordinator_may_append_without_a_guard_but_not_with_a_stale_one() -> None:
    log = open_log()
    stale = start(log)
    append_marker(log, marker(False))
    records = batch(producer_id=PRODUCER, producer_epoch=0, transactional=True)
    with pytest.raises(InvalidTxnState):
        log.append(records, 0, AppendOrigin.COORDINATOR, guard=stale)
    log.append(records, 0, AppendOrigin.COORDINATOR)


def test_verification_can_be_switched_off() -> None:
    log = open_log()
    assert log.append(transactional(0), 0, guard=NO_VERIFICATION).base_offset == 0


def test_guards_that_are_never_used_expire() -> None:
    log = open_log()
    start(log)
    log.producers.expire(NOW_MS + 999, 1000)
    assert log.producers.guards
    log.producers.expire(NOW_MS + 1000, 1000)
    assert not log.producers.guards


@pytest.mark.parametrize(
    ("epoch", "version", "ok"), [(0, 1, True), (0, 2, False), (1, 2, True), (1, 1, True)]
)
def test_a_marker_of_version_2_has_a_higher_epoch_than_the_records(
    epoch: int, version: int, ok: bool
) -> None:
    """A late marker of the transaction before must not end this one."""
    log = open_log()
    log.append(transactional(0), 0, guard=start(log))
    if ok:
        log.producers.check_marker_epoch(PRODUCER, epoch, version)
    else:
        with pytest.raises(InvalidProducerEpoch):
            log.producers.check_marker_epoch(PRODUCER, epoch, version)


def test_a_marker_of_version_2_may_be_repeated_while_no_transaction_is_open() -> None:
    log = open_log()
    log.append(transactional(0), 0, guard=start(log))
    append_marker(log, marker(True, epoch=1))
    log.producers.check_marker_epoch(PRODUCER, 1, 2)
    with pytest.raises(ApiError):
        log.producers.check_marker_epoch(PRODUCER, 0, 2)


def test_followers_and_recovery_take_markers_as_they_come() -> None:
    """The log does not have the transaction version of a marker: the leader has checked it."""
    leader, follower = open_log(), open_log()
    first = transactional(0)
    leader.append(first, 0, guard=start(leader))
    same_epoch = marker(True)
    append_marker(leader, same_epoch)
    follower.append_replicated(first)
    follower.append_replicated(same_epoch)
    assert follower.end_offset == 2
    assert not follower.producers.ongoing
