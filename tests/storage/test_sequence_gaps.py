"""Gaps in the sequences of producers: which of them the producer's own earlier batch will fill."""

from __future__ import annotations

import pytest

from penstock.model.errors import NotLeaderOrFollower, OutOfOrderSequence
from penstock.storage import sequence_gaps
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from tests.storage.logs import StillClock, idempotent, open_log

PATIENCE_MS = 10_000


class Led:
    """A log whose partition had another leader, which has refused batches when it resigned."""

    def __init__(self, leader_epoch: int = 3) -> None:
        self.clock = StillClock()
        self.log: Log = open_log(clock=self.clock)
        self.epoch = leader_epoch
        self.log.append(idempotent(0, 2), 0)
        self.log.appender.sequence_gaps.led(leader_epoch)

    def append(self, sequence: int, **fields: int) -> int:
        return self.log.append(idempotent(sequence, **fields), self.epoch).base_offset


def test_a_gap_after_an_election_is_retried_until_the_batch_before_it_comes() -> None:
    led = Led()
    for sequence in (3, 4, 5):
        with pytest.raises(NotLeaderOrFollower, match=f"sends sequence {sequence} in epoch 0, 2 comes"):
            led.append(sequence)
    assert [led.append(sequence) for sequence in (2, 3, 4, 5)] == [2, 3, 4, 5]


def test_a_gap_that_stays_is_a_loss() -> None:
    led = Led()
    with pytest.raises(NotLeaderOrFollower):
        led.append(5)
    led.clock.ms += PATIENCE_MS - 1
    with pytest.raises(NotLeaderOrFollower):
        led.append(6)
    led.clock.ms += 1
    for sequence in (5, 6):
        with pytest.raises(OutOfOrderSequence):
            led.append(sequence)
    assert led.append(2) == 2
    with pytest.raises(NotLeaderOrFollower):
        led.append(5)


def test_a_sequence_that_was_passed_is_out_of_order_at_once() -> None:
    led = Led()
    for sequence in range(2, 8):
        led.append(sequence)
    with pytest.raises(OutOfOrderSequence):
        led.append(1)


def test_the_first_leader_takes_a_gap_for_a_loss() -> None:
    led = Led(leader_epoch=0)
    with pytest.raises(OutOfOrderSequence):
        led.append(3)


def test_a_batch_behind_a_refused_one_waits_for_it() -> None:
    led = Led(leader_epoch=0)
    led.log.appender.sequence_gaps.refused()
    with pytest.raises(NotLeaderOrFollower):
        led.append(3)
    assert led.append(2) == 2


def test_a_new_producer_epoch_waits_for_its_first_batch() -> None:
    led = Led()
    with pytest.raises(NotLeaderOrFollower):
        led.append(1, epoch=1)
    assert led.append(0, epoch=1) == 2


def test_the_second_batch_of_an_unknown_producer_does_not_overtake_its_first() -> None:
    """The producer would take the first one for delivered."""
    led = Led()
    for sequence in (1, 2):
        with pytest.raises(NotLeaderOrFollower, match="is not known here"):
            led.append(sequence, producer_id=8)
    assert [led.append(sequence, producer_id=8) for sequence in (0, 1, 2)] == [2, 3, 4]


def test_an_unknown_producer_may_start_anywhere_if_nothing_was_refused_lately() -> None:
    led = Led()
    with pytest.raises(NotLeaderOrFollower):
        led.append(40, producer_id=8)
    led.clock.ms += PATIENCE_MS
    assert led.append(40, producer_id=8) == 2
    assert led.append(700, producer_id=9) == 3


def test_a_transaction_waits_for_its_first_batch() -> None:
    led = Led()
    guard = led.log.producers.start_verification(8, 0, 0, True, led.clock.now_ms())
    with pytest.raises(NotLeaderOrFollower):
        led.log.append(idempotent(1, producer_id=8, transactional=True), led.epoch, guard=guard)
    for sequence in (0, 1):
        led.log.append(
            idempotent(sequence, producer_id=8, transactional=True),
            led.epoch,
            guard=guard if sequence == 0 else NO_VERIFICATION,
        )


def test_remembered_gaps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_gaps, "_GAPS_MAX", 3)
    led = Led()
    for producer_id in range(10, 15):
        with pytest.raises(NotLeaderOrFollower):
            led.append(1, producer_id=producer_id)
    assert list(led.log.appender.sequence_gaps._seen) == [12, 13, 14]
