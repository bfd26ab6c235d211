"""The schedule of a delay partition: replay, order, plans in doubt, and what the log has to keep."""

from __future__ import annotations

import pytest

from penstock.model.errors import CorruptMessage
from penstock.records.record import Record, build_batch
from penstock.shares.delay_log import Done, Plan, Target, build_done, build_plan, parse_progress
from penstock.shares.delay_schedule import DelaySchedule, due_ms

ORDERS = Target("orders", 0)


def schedule(*dues: int) -> DelaySchedule:
    made = DelaySchedule()
    for offset, due in enumerate(dues):
        made.add(offset, due)
    made.end = len(dues)
    made.producer_id = 7
    return made


def test_progress_survives_its_encoding() -> None:
    plan, done = Plan(ORDERS, 7, 3, (1, 5)), Done(ORDERS, 3)
    assert parse_progress(build_plan(plan, 1)) == plan
    assert parse_progress(build_done(done, 1)) == done
    other = build_batch([Record(0, 0, b"\0\0\0\1", b"")], control=True)
    assert parse_progress(other) is None
    broken = build_batch([Record(0, 0, b"\0\0\x27\x10", b"[1")], control=True)
    with pytest.raises(CorruptMessage):
        parse_progress(broken)


@pytest.mark.parametrize(("value", "expected"), [(b"1500", 1500), (b"soon", 0), (None, 0), (b"-3", 0)])
def test_the_delivery_time(value: bytes | None, expected: int) -> None:
    assert due_ms(Record(0, 0, None, None, (("penstock-deliver-at", value),))) == expected
    assert due_ms(Record(0, 0, None, None)) == 0


def test_messages_are_due_in_the_order_of_their_times() -> None:
    found = schedule(30, 10, 20, 99)
    assert found.next_due() == 10
    assert found.due(30, 10) == [1, 2, 0]
    assert found.due(30, 2) == [1, 2]
    assert found.due(5, 10) == []


def test_a_planned_message_does_not_wait_any_more() -> None:
    found = schedule(10, 20)
    plan = found.plan(ORDERS, [0])
    found.replay(plan, 2)
    assert (found.doubtful(), found.due(99, 10), found.next_due()) == ([plan], [1], 20)
    found.replay(Done(ORDERS, plan.sequence), 3)
    assert found.doubtful() == []


def test_sequences_follow_each_other() -> None:
    found = schedule(1, 1, 1)
    found.replay(found.plan(ORDERS, [0, 1]), 3)
    assert found.plan(ORDERS, [2]).sequence == 2
    assert found.plan(Target("orders", 1), [2]).sequence == 0
    found.replay(Plan(ORDERS, 7, 2**31 - 1, (2,)), 4)
    assert found.plan(ORDERS, [9]).sequence == 0


def test_the_log_keeps_waiting_messages_doubtful_plans_and_last_plans() -> None:
    found = schedule(10, 20)
    assert found.first_needed() == 0
    found.replay(found.plan(ORDERS, [0]), 2)
    assert found.first_needed() == 0
    found.replay(Done(ORDERS, 0), 3)
    assert found.first_needed() == 1
    found.replay(found.plan(ORDERS, [1]), 4)
    found.replay(Done(ORDERS, 1), 5)
    found.end = 6
    assert found.first_needed() == 4, "the next plan continues its sequence"
