"""When a wall clock is believed: against the monotonic clock, the history, other brokers and an operator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.timekeeping.trust import Cause, SavedClock, Standing
from tests.timekeeping.clocks import DAY_MS, GRACE_MS, HOUR_MS, LIMIT_MS, MINUTE_MS, Watched


@pytest.fixture
def alone() -> Watched:
    watched = Watched()
    assert watched.run(10 * DAY_MS, HOUR_MS)
    return watched


@pytest.fixture
def member() -> Watched:
    """A broker of a cluster, which has watched the time for long."""
    watched = Watched(alone=False)
    assert watched.compare()
    assert watched.run(DAY_MS)
    return watched


def cause(watched: Watched) -> Cause | None:
    doubt = watched.trust.doubt
    return None if doubt is None else doubt.cause


# -- the monotonic clock


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS, LIMIT_MS + 1, -LIMIT_MS - 1])
def test_a_jump_is_accepted_after_the_grace_period(alone: Watched, jump_ms: int) -> None:
    alone.ahead_ms = jump_ms
    assert not alone.look()
    assert cause(alone) is Cause.JUMP
    assert not alone.run(GRACE_MS - 1)
    assert alone.run(1)
    assert alone.trust.standing is Standing.BELIEVED


def test_a_jump_that_is_undone_is_forgotten(alone: Watched) -> None:
    """A virtual machine is resumed with a wrong clock for 20 s."""
    alone.ahead_ms = 2 * DAY_MS
    assert not alone.run(20_000, 1000)
    alone.ahead_ms = 0
    assert alone.look()
    assert alone.run(DAY_MS)


def test_another_jump_starts_the_grace_period_again(alone: Watched) -> None:
    for days in (2, 4):
        alone.ahead_ms = days * DAY_MS
        assert not alone.run(GRACE_MS - 1)


def test_a_slewed_clock_is_trusted(alone: Watched) -> None:
    """By 5 % for a day: chrony slews by a twelfth at most."""
    for _ in range(24 * 60):
        alone.passed_ms += MINUTE_MS
        alone.ahead_ms += MINUTE_MS // 20
        assert alone.look()


def test_many_small_steps_are_a_jump(alone: Watched) -> None:
    believed = True
    for _ in range(100):
        alone.passed_ms += 1000
        alone.ahead_ms += LIMIT_MS // 10
        believed = believed and alone.look()
    assert not believed


@pytest.mark.parametrize("shift_ms", [1000, -1000])
def test_a_leap_second_is_no_jump(alone: Watched, shift_ms: int) -> None:
    alone.ahead_ms = shift_ms
    assert alone.look()


# -- the history


@pytest.mark.parametrize("off_ms", [0, 10_000, LIMIT_MS])
def test_a_short_stop_is_no_jump(alone: Watched, off_ms: int) -> None:
    assert alone.restart(off_ms)
    assert alone.trust.standing is Standing.BELIEVED


def test_an_hour_off_waits_for_an_hour_and_needs_no_operator(alone: Watched) -> None:
    assert not alone.restart(HOUR_MS)
    assert alone.trust.doubt is not None
    assert not alone.trust.doubt.is_alarming
    assert not alone.run(HOUR_MS - MINUTE_MS)
    assert alone.run(MINUTE_MS)


def test_months_off_wait_only_for_the_grace_period(alone: Watched) -> None:
    assert not alone.restart(90 * DAY_MS)
    assert alone.trust.doubt is not None
    assert alone.trust.doubt.is_alarming
    assert not alone.run(GRACE_MS - MINUTE_MS)
    assert alone.run(MINUTE_MS)


def test_a_clock_that_is_wrong_at_the_start_is_not_trusted(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    assert not alone.restart(10_000)
    alone.ahead_ms = 0
    assert alone.look()


def test_a_clock_behind_the_time_of_the_stop_is_not_trusted(alone: Watched) -> None:
    alone.ahead_ms = -2 * DAY_MS
    assert not alone.restart(10_000)
    assert not alone.run(GRACE_MS - MINUTE_MS)
    assert alone.run(MINUTE_MS)


def test_restarts_in_the_grace_period_do_not_shorten_it(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    for _ in range(5):
        assert not alone.run(HOUR_MS)
        assert not alone.restart(5000)
    assert not alone.run(HOUR_MS - MINUTE_MS)
    assert alone.run(MINUTE_MS)


def test_time_off_in_the_grace_period_does_not_count(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    assert not alone.run(HOUR_MS)
    assert not alone.restart(10 * DAY_MS)
    assert not alone.run(GRACE_MS - MINUTE_MS)


@pytest.mark.parametrize("lost_at_ms", [0, HOUR_MS])
def test_without_a_saved_time_it_waits_for_the_grace_period(alone: Watched, lost_at_ms: int) -> None:
    assert not alone.restart(lost=True)
    assert not alone.run(lost_at_ms)
    assert not alone.restart(lost=True)
    assert not alone.run(GRACE_MS - MINUTE_MS)
    assert alone.run(MINUTE_MS)


def test_restarts_without_a_saved_time_before_wait_no_longer(alone: Watched) -> None:
    alone.restart(lost=True)
    for _ in range(5):
        assert not alone.run(HOUR_MS)
        assert not alone.restart(5000)
    assert alone.run(HOUR_MS)


@pytest.mark.parametrize(("age_ms", "alarming"), [(MINUTE_MS, False), (2 * DAY_MS, True), (-DAY_MS, True)])
def test_the_newest_record_decides_whether_an_operator_has_to_know(
    alone: Watched, age_ms: int, alarming: bool
) -> None:
    alone.restart(lost=True)
    alone.trust.newest_record(alone.true_ms - age_ms)
    alone.look()
    assert alone.trust.doubt is not None
    assert alone.trust.doubt.is_alarming is alarming
    assert "newest record" in alone.trust.doubt.reason
    assert not alone.run(GRACE_MS - MINUTE_MS)


@given(
    off_ms=st.integers(0, 30 * DAY_MS),
    ahead_ms=st.integers(-30 * DAY_MS, 30 * DAY_MS),
    older_ms=st.integers(LIMIT_MS + 1, 30 * DAY_MS),
    held_ms=st.integers(0, GRACE_MS),
)
def test_an_older_or_missing_file_never_shortens_the_wait(
    off_ms: int, ahead_ms: int, older_ms: int, held_ms: int
) -> None:
    """Whatever the older copy says about a hold that it was written in."""
    waits = []
    for how in ("as it was", "older", "missing"):
        alone = Watched()
        alone.look()
        saved = alone.trust.saved()
        alone.ahead_ms = ahead_ms
        if how == "older":
            saved = SavedClock(saved.believed_ms - older_ms, saved.wall_ms - older_ms, held_ms)
        alone.restart(off_ms, saved, lost=how == "missing")
        waits.append(alone.trust.grace_left_ms)
    right, older, missing = waits
    assert missing == GRACE_MS
    # A clock that is behind deletes less, whether it is believed or not.
    assert older >= right or off_ms + ahead_ms < 0


# -- other brokers


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS])
def test_one_broker_with_another_time_is_not_trusted(member: Watched, ahead_ms: int) -> None:
    member.restart(10_000)
    member.ahead_ms = ahead_ms
    assert not member.compare()
    member.ahead_ms = 0
    assert member.compare()


def test_brokers_that_are_wrong_together_do_not_correct_each_other(member: Watched) -> None:
    member.ahead_ms = 2 * DAY_MS
    assert not member.compare(member.true_ms + 2 * DAY_MS, vouched=False)
    assert member.trust.standing is Standing.HELD
    assert not member.run(GRACE_MS - MINUTE_MS)


def test_a_broker_that_was_off_for_months_is_trusted_once_other_brokers_confirm(member: Watched) -> None:
    assert not member.restart(90 * DAY_MS)
    assert member.trust.standing is Standing.HELD
    assert not member.compare(vouched=False)
    assert member.compare()


def test_a_paused_machine_is_trusted_once_other_brokers_confirm(member: Watched) -> None:
    member.ahead_ms = 2 * HOUR_MS
    assert not member.look()
    assert member.compare(member.true_ms + 2 * HOUR_MS)


def test_other_brokers_do_not_confirm_a_clock_that_was_set_since_the_request(member: Watched) -> None:
    sent = member.read()
    member.ahead_ms = 2 * DAY_MS
    now = member.read()
    member.trust.observe(now)
    member.trust.compared(sent, now, member.true_ms, True)
    assert not member.look()


def test_a_new_broker_waits_for_a_confirmed_clock() -> None:
    member = Watched(alone=False)
    assert not member.look()
    assert not member.trust.is_compared
    assert not member.compare(vouched=False)
    standings = [member.trust.standing]
    assert member.compare()
    standings.append(member.trust.standing)
    assert standings == [Standing.NEW, Standing.BELIEVED]


def test_a_new_broker_that_was_never_trusted_is_held_when_it_restarts() -> None:
    member = Watched(alone=False)
    member.ahead_ms = 2 * DAY_MS
    assert not member.compare()
    member.restart(1000)
    assert member.trust.standing is Standing.HELD


def test_a_controller_of_an_earlier_release_confirms_no_held_clock(member: Watched) -> None:
    assert member.compare(vouched=None)
    member.ahead_ms = 2 * DAY_MS
    assert not member.compare(member.true_ms + 2 * DAY_MS, vouched=None)


def test_clocks_that_disagree_are_not_trusted(member: Watched) -> None:
    member.trust.disagreed()
    assert not member.look()
    assert cause(member) is Cause.DISAGREEMENT
    assert member.compare()


# -- an operator


def test_an_operator_confirms_the_time(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    assert not alone.look()
    alone.limits.confirmed = alone.true_ms + 2 * DAY_MS
    assert alone.look()
    assert alone.trust.watched_since_ms == 0
    assert alone.run(DAY_MS)


def test_another_time_than_the_confirmed_one_is_not_trusted(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    alone.limits.confirmed = alone.true_ms
    assert not alone.run(GRACE_MS - MINUTE_MS)


def test_a_confirmed_time_lets_a_round_of_retention_go_on(alone: Watched) -> None:
    alone.limits.confirmed = alone.true_ms
    assert alone.look()
    assert alone.trust.watched_since_ms == 0


# -- since when the time is watched


def test_the_time_is_watched_over_short_stops(alone: Watched) -> None:
    since_ms = alone.trust.watched_since_ms
    alone.restart(10_000)
    assert alone.trust.watched_since_ms == since_ms
    alone.ahead_ms = 2 * DAY_MS
    alone.look()
    alone.ahead_ms = 0
    alone.look()
    assert alone.trust.watched_since_ms == since_ms


def test_the_time_is_watched_from_a_jump_on_that_was_accepted(alone: Watched) -> None:
    alone.ahead_ms = 2 * DAY_MS
    jumped_ms = alone.read().wall_ms
    assert not alone.look()
    alone.run(GRACE_MS)
    assert alone.trust.watched_since_ms == jumped_ms
