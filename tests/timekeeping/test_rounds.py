"""A round of retention that would delete far more than usual waits."""

from __future__ import annotations

from penstock.timekeeping.rounds import RoundGuard, Survey
from penstock.timekeeping.trust import Cause

GRACE_MS = 6 * 3_600_000
MINUTE_MS = 60_000


def may(guard: RoundGuard, overdue: int, now_ms: int, *, total: int = 100, confirmed: bool = False) -> bool:
    return guard.may_delete(Survey(total, overdue), now_ms, GRACE_MS, confirmed=confirmed)


def test_a_round_with_nothing_overdue_is_usual() -> None:
    guard = RoundGuard()
    assert may(guard, 0, 0)
    assert guard.doubt is None


def test_everything_at_once_waits_for_a_round_after_the_grace_period() -> None:
    guard = RoundGuard()
    for now_ms in range(0, GRACE_MS, 5 * MINUTE_MS):
        assert not may(guard, 100, now_ms)
    assert guard.doubt is not None
    assert guard.doubt.cause is Cause.ROUND
    assert may(guard, 100, GRACE_MS)
    assert may(guard, 0, GRACE_MS + 1)
    assert guard.doubt is None


def test_a_small_part_is_deleted_at_once() -> None:
    assert may(RoundGuard(), 50, 0)


def test_as_much_as_the_last_rounds_have_deleted_is_deleted_at_once() -> None:
    guard = RoundGuard()
    guard.deleted(20)
    assert may(guard, 80, 0)
    assert not may(guard, 81, 0)


def test_an_operator_confirms_the_round() -> None:
    guard = RoundGuard()
    assert not may(guard, 100, 0)
    assert may(guard, 100, 1, confirmed=True)


def test_a_restart_does_not_begin_the_wait_again() -> None:
    guard = RoundGuard(waited_ms=GRACE_MS - MINUTE_MS)
    assert not may(guard, 100, 0)
    assert may(guard, 100, MINUTE_MS)


def test_another_large_round_waits_again() -> None:
    guard = RoundGuard()
    may(guard, 100, 0)
    may(guard, 0, MINUTE_MS)
    assert not may(guard, 100, GRACE_MS)
