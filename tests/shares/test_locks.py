from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.shares.locks import Lock, LockDeadlines


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 60)))
def test_each_lock_is_due_once_and_not_before_its_deadline(deadlines: list[int], times: list[int]) -> None:
    locks = LockDeadlines()
    waiting = [Lock(deadline, n, n) for n, deadline in enumerate(deadlines)]
    for lock in waiting:
        locks.add(lock)
    for now_ms in sorted(times):
        due = [lock for lock in waiting if lock.deadline_ms <= now_ms]
        assert sorted(locks.take_due(now_ms)) == sorted(due)
        waiting = [lock for lock in waiting if lock not in due]
        assert locks.next_ms == min((lock.deadline_ms for lock in waiting), default=None)
    assert (len(locks), locks.added) == (len(waiting), len(deadlines))


def test_entries_of_released_locks_are_replaced_once_they_outnumber_the_runs() -> None:
    locks = LockDeadlines()
    for n in range(100):
        locks.add(Lock(n, n, n))
    assert locks.is_oversized(1) and not locks.is_oversized(50)
    locks.replace([Lock(70, 70, 70), Lock(30, 30, 30)])
    assert (len(locks), locks.next_ms) == (2, 30)
    assert not locks.is_oversized(1)
