"""Records are deletable when they have been in the log for the delay."""

from __future__ import annotations

from penstock.shares.deletion_delay import DeletionDelay


def test_records_are_deletable_after_the_delay() -> None:
    delay = DeletionDelay(1000)
    assert delay.deletable(5000, 10) == 0, "how old they are is not known in a new term"
    assert delay.deletable(5500, 20) == 0
    assert delay.deletable(5999, 30) == 0
    assert delay.deletable(6000, 40) == 10
    assert delay.deletable(6500, 40) == 20
    assert delay.deletable(60_000, 50) == 40
    assert delay.deletable(61_000, 50) == 50


def test_without_a_delay_all_records_are_deletable() -> None:
    delay = DeletionDelay(0)
    assert delay.deletable(5000, 10) == 10
    assert delay.deletable(5000, 11) == 11


def test_few_ends_are_kept() -> None:
    delay = DeletionDelay(1000)
    for now_ms in range(100_000):
        deletable = delay.deletable(now_ms, now_ms)
        assert now_ms - 1100 <= deletable <= max(0, now_ms - 1000) or now_ms < 1100
    assert len(delay._notes) <= 21
