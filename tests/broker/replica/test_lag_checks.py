"""Checks of followers that lag: stalls of the leader do not count."""

from __future__ import annotations

from penstock.broker.replica.lag_checks import StallAllowance


def test_followers_get_the_time_for_which_the_leader_did_not_run() -> None:
    allowance = StallAllowance(1000)
    assert allowance.checked(1000) == 0
    assert allowance.checked(41_000) == 40_000
    # For more than the time that a follower may lag: three intervals of half of it.
    assert allowance.checked(41_000) == 40_000
    assert allowance.checked(41_000) == 40_000
    assert allowance.checked(41_000) == 0


def test_stalls_that_follow_each_other_add_up() -> None:
    allowance = StallAllowance(0)
    assert [allowance.checked(stalled_ms) for stalled_ms in (10, 30, 60, 60)] == [10, 30, 60, 50]
