"""Decisions that wait for their append: in order, in parts, with what waits for them."""

from __future__ import annotations

from typing import Any

from penstock.broker.coordinators.decisions import RECORDS_AT_ONCE, Decisions
from penstock.broker.coordinators.replies import PendingReply
from penstock.coordination.outbox import Outbox, TransactionalRecords
from penstock.wire.apis.heartbeat import HeartbeatResponse


def _outbox(number: int, *, divisible: bool = False, effect: Any = None) -> tuple[Outbox, PendingReply]:
    """The output of a turn with a reply."""
    outbox = Outbox()
    outbox.records += [(b"%d" % index, None) for index in range(number)]
    pending = PendingReply(lambda _: HeartbeatResponse())
    outbox.replies.append((pending, HeartbeatResponse()))
    if effect is not None:
        outbox.effects.append(effect)
    outbox.is_divisible = divisible
    return outbox, pending


def test_turns_with_few_records_are_appended_together() -> None:
    decisions = Decisions()
    outputs = [_outbox(3) for _ in range(4)]
    for outbox, _ in outputs:
        decisions.add(outbox)
    assert decisions.pending() == [pending for _, pending in outputs]
    records, replies, _ = decisions.take()
    assert len(records) == 12
    assert [pending for pending, _ in replies] == [pending for _, pending in outputs]
    assert not decisions.units and not decisions.records


def test_many_records_are_appended_in_parts() -> None:
    decisions = Decisions()
    half = RECORDS_AT_ONCE // 2 + 1
    (first, one), (second, two) = _outbox(half), _outbox(half)
    decisions.add(first)
    decisions.add(second)
    for pending in (one, two):
        records, replies, _ = decisions.take()
        assert len(records) == half
        assert [each for each, _ in replies] == [pending]
    assert not decisions.units


def test_the_records_of_one_decision_stay_together() -> None:
    decisions = Decisions()
    decisions.add(_outbox(3 * RECORDS_AT_ONCE)[0])
    assert len(decisions.take()[0]) == 3 * RECORDS_AT_ONCE


def test_a_divisible_decision_is_answered_with_its_last_part() -> None:
    decisions = Decisions()
    outbox, pending = _outbox(2 * RECORDS_AT_ONCE + 1, divisible=True, effect="effect")
    decisions.add(outbox)
    taken = [decisions.take() for _ in range(3)]
    assert [len(records) for records, _, _ in taken] == [RECORDS_AT_ONCE, RECORDS_AT_ONCE, 1]
    assert [bool(replies) for _, replies, _ in taken] == [False, False, True]
    assert [effects for _, _, effects in taken] == [[], [], ["effect"]]
    assert taken[2][1][0][0] is pending
    assert [record for records, _, _ in taken for record in records] == outbox.records


def test_transactions_of_a_producer_are_found_until_they_are_appended() -> None:
    decisions = Decisions()
    decisions.add(_outbox(RECORDS_AT_ONCE)[0])
    outbox = Outbox()
    records = TransactionalRecords(7, 0, [(b"key", b"value")], None)
    outbox.records.append(records)
    decisions.add(outbox)
    assert decisions.records.of_producer(7) == [records]
    decisions.take()
    assert decisions.records.of_producer(7) == [records]
    decisions.take()
    assert decisions.records.of_producer(7) == ()
