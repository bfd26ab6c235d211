"""The schedule of a delay partition: replay, order, plans in doubt, and what the log has to keep."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from penstock.records.record import Record
from penstock.shares.delay_log import Done, Outcome, Plan, Target
from penstock.shares.delay_schedule import ASIDE_MAX, DelaySchedule, Sequences, due_ms

ORDERS = Target("orders", 0)
PRODUCER = 7


def schedule(*dues: int, messages_max: int = 100) -> DelaySchedule:
    made = DelaySchedule(messages_max)
    for offset, due in enumerate(dues):
        made.add(offset, due)
    made.messages_end = made.progress_end = len(dues)
    return made


def plan(*offsets: int, sequence: int = 0, target: Target = ORDERS) -> Plan:
    return Plan(target, PRODUCER, sequence, offsets)


def end(ended: Plan, outcome: Outcome = Outcome.MOVED) -> Done:
    return Done(ended.target, ended.sequence, ended.producer_id, outcome)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"1500", 1500), (b"soon", 0), (None, 0), (b"-3", 0), (b"9" * 400, 2**63 - 1), (b"9" * 5000, 0)],
)
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
    first = plan(0)
    found.replay(first, 2)
    assert (found.doubtful(), found.due(99, 10), found.next_due()) == ([first], [1], 20)
    found.replay(end(plan(0, sequence=5)), 3)
    assert found.doubtful() == [first], "the end of another plan"
    found.replay(end(first), 4)
    assert found.doubtful() == []


def test_a_plan_that_was_appended_twice_is_one_plan() -> None:
    found = schedule(10, 20)
    found.replay(plan(0), 2)
    found.replay(plan(0), 3)
    found.replay(end(plan(0), Outcome.RETURNED), 4)
    found.replay(end(plan(0), Outcome.RETURNED), 5)
    assert (found.doubtful(), found.due(99, 10)) == ([], [0, 1])


def test_returned_messages_wait_again() -> None:
    found = schedule(10, 20, 30)
    assert found.due(99, 2) == [0, 1]
    found.replay(plan(0, 1), 3)
    found.replay(end(plan(0, 1), Outcome.RETURNED), 4)
    assert found.due(99, 10) == [0, 1, 2]
    found.messages_end = 9
    assert found.first_needed() == 0
    found.replay(plan(0, sequence=2), 5)
    found.replay(end(plan(0, sequence=2), Outcome.DROPPED), 6)
    assert (found.due(99, 10), found.first_needed()) == ([1, 2], 1)


def test_a_plan_with_another_producer_id_replaces_the_one_before() -> None:
    """As earlier versions wrote it, for a target that did not continue the sequence."""
    found = schedule(10)
    found.replay(plan(0), 1)
    other = Plan(ORDERS, 8, 0, (0,))
    found.replay(other, 2)
    assert found.doubtful() == [other]
    found.replay(end(other, Outcome.RETURNED), 3)
    assert found.due(99, 10) == [0]


def test_sequences_follow_each_other() -> None:
    sequences = Sequences()
    sequences.renew(PRODUCER)
    first = sequences.plan(ORDERS, (0, 1))
    assert first == plan(0, 1)
    sequences.moved(first)
    assert sequences.plan(ORDERS, (2,)).sequence == 2
    assert sequences.plan(Target("orders", 1), (2,)).sequence == 0
    sequences.moved(Plan(ORDERS, PRODUCER, 2**31 - 1, (2,)))
    assert sequences.plan(ORDERS, (9,)).sequence == 0
    sequences.moved(Plan(ORDERS, PRODUCER - 1, 40, (2,)))
    assert sequences.plan(ORDERS, (9,)).sequence == 0, "a plan of an earlier term"
    sequences.moved(first)
    sequences.renew(8)
    assert sequences.plan(ORDERS, (3,)) == Plan(ORDERS, 8, 0, (3,))


def test_the_log_keeps_waiting_messages_and_doubtful_plans() -> None:
    found = schedule(10, 20)
    assert found.first_needed() == 0
    found.replay(plan(0), 2)
    assert found.first_needed() == 0
    found.replay(end(plan(0)), 3)
    assert found.first_needed() == 1
    found.replay(plan(1, sequence=1), 4)
    found.replay(end(plan(1, sequence=1)), 5)
    found.messages_end = found.progress_end = 6
    assert found.first_needed() == 6, "a plan that has ended is not needed"


def test_the_log_keeps_undecided_messages() -> None:
    found = schedule(10)
    found.progress_end = 9
    found.replay(plan(0), 5)
    found.replay(end(plan(0)), 6)
    assert found.first_needed() == 1


def test_deleted_messages_do_not_wait() -> None:
    found = schedule(10, 20, 30)
    found.deleted(2)
    assert (found.due(99, 10), len(found), found.first_needed()) == ([2], 1, 2)
    found.deleted(8)
    assert (found.messages_end, found.progress_end, found.first_needed()) == (8, 8, 8)


# -- messages that the target refuses


def test_refused_messages_are_tried_again_later() -> None:
    found = schedule(10, 20)
    found.replay(plan(0), 2)
    found.replay(end(plan(0), Outcome.RETURNED), 3)
    found.set_aside(0, 500)
    assert (found.is_aside(0), found.is_aside(1)) == (True, False)
    assert (found.due(99, 10), found.next_due(), found.first_needed()) == ([1], 20, 0)
    assert found.due(500, 10) == [0, 1]
    found.replay(plan(0), 4)
    assert (found.is_aside(0), found.due(500, 10)) == (False, [1])


def test_a_refused_message_is_tried_again_after_growing_pauses() -> None:
    found = schedule(10, 20)
    pauses_s: list[int] = []
    for sequence in range(8):
        refused = plan(0, sequence=sequence)
        found.replay(refused, 2)
        found.replay(end(refused, Outcome.RETURNED), 3)
        found.refuse(0, 5000)
        pauses_s.append(min(s for s in range(4000) if found.due(5000 + 1000 * s, 1) == [0]))
    assert pauses_s == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert found.set_aside_count == 1
    moved = plan(0, sequence=9)
    found.replay(moved, 4)
    found.replay(end(moved), 5)
    found.refuse(1, 5000)
    found.deleted(2)
    assert (found.set_aside_count, found._pauses_ms) == (0, {})


def test_a_target_that_refuses_everything_gets_no_more_messages() -> None:
    found = schedule(*[1] * (ASIDE_MAX + 5), messages_max=ASIDE_MAX * 2)
    for offset in range(ASIDE_MAX):
        found.set_aside(offset, 500 + offset)
    assert (found.due(99, 10), found.next_due()) == ([], 500)
    found.prune()
    assert not found.needs_pass(99)
    assert found.due(501, 10) == [0, 1]
    found.replay(plan(0), 9998)
    found.replay(end(plan(0)), 9999)
    assert found.due(99, 10) == [ASIDE_MAX, ASIDE_MAX + 1]
    assert found.needs_pass(99)


# -- more messages than memory


def test_messages_that_are_due_last_are_left_out() -> None:
    dues = [(offset * 7919) % 1000 for offset in range(1000)]
    found = schedule(*dues[:101], messages_max=100)
    assert found.is_full
    found.prune()
    assert 30 <= len(found) <= 70
    kept = found.due(9999, 1000)
    assert kept == sorted(range(101), key=lambda offset: (dues[offset], offset))[: len(kept)]
    first_left_out = min(set(range(101)) - set(kept))
    found.messages_end = 101
    for offset in kept:
        found.replay(plan(offset, sequence=offset), 2000)
        found.replay(end(plan(offset, sequence=offset)), 2001)
    assert found.first_needed() == first_left_out
    assert found.needs_pass(0), "no other messages are left"


def test_a_pass_waits_for_the_horizon() -> None:
    found = schedule(*range(100, 111), messages_max=10)
    found.prune()
    count = len(found)
    assert not found.needs_pass(99)
    assert found.needs_pass(200)
    found.add(50, 1)
    assert len(found) == count + 1, "messages before the horizon are added"
    found.add(51, 999)
    assert len(found) == count + 1


class History:
    """A log of messages and progress, and the messages that the target has."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.log: list[tuple[str, int] | Plan | Done] = []
        self.start = 0
        self.moved: list[int] = []
        self.dues: dict[int, int] = {}
        self.sequence = 0

    def append(self, due: int) -> None:
        self.dues[len(self.log)] = due
        self.log.append(("message", due))

    def read(self, found: DelaySchedule) -> None:
        for position in range(found.messages_end, len(self.log)):
            item = self.log[position]
            if isinstance(item, tuple) and not isinstance(item, Plan | Done):
                found.add(position, item[1])
            else:
                assert isinstance(item, Plan | Done)
                found.replay(item, position)
            if found.is_full:
                found.prune()
        found.messages_end = found.progress_end = len(self.log)

    def move(self, found: DelaySchedule, now_ms: int) -> bool:
        """One round of a mover."""
        self.read(found)
        self.start = max(self.start, found.first_needed())
        due = found.due(now_ms, 4)
        if not due:
            if not found.needs_pass(now_ms):
                return False
            found.begin_pass(self.start)
            return True
        moved = plan(*due, sequence=self.sequence)
        self.sequence += len(due)
        self.log.append(moved)
        outcome = Outcome.RETURNED if self.rng.random() < 0.1 else Outcome.MOVED
        if outcome is Outcome.MOVED:
            self.moved += due
        self.log.append(end(moved, outcome))
        return True


@pytest.mark.parametrize("seed", range(30))
def test_all_messages_are_moved_once_within_any_memory_limit(seed: int) -> None:
    rng = Random(seed)
    history = History(rng)
    found = DelaySchedule(rng.choice([3, 10, 1000]))
    for now_ms in range(0, 300, 10):
        for _ in range(rng.randrange(8)):
            history.append(now_ms + rng.choice([0, 5, 50, 250, 250, 250]))
        if rng.random() < 0.1:
            found = DelaySchedule(10)
            found.start_at(history.start)
        while history.move(found, now_ms):
            assert all(history.dues[offset] <= now_ms for offset in history.moved)
    late = [o for o in history.dues if o not in history.moved and history.dues[o] <= 290]
    assert late == []
    while history.move(found, 9999):
        pass
    assert sorted(history.moved) == sorted(history.dues)
    assert found.first_needed() == len(history.log)


def test_a_message_in_the_table_takes_at_most_250_bytes() -> None:
    """As the page about queues says; offsets and times are beyond the small integers that Python shares."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = DelaySchedule()
        for number in range(50_000):
            made.add(1_000_000 + number, 1_790_000_000_000 + number * 977 % 100_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / len(made) < 250
