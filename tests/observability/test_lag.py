"""Lag in records, and in seconds out of a history of high watermarks."""

from __future__ import annotations

import pytest

from penstock.observability.lag import SAMPLES_MAX, Lag, OffsetHistory, group_lag, partition_lag


def history(*samples: tuple[float, int]) -> OffsetHistory:
    found = OffsetHistory()
    for at, offset in samples:
        found.add(at, offset)
    return found


def test_a_group_at_the_end_has_no_lag() -> None:
    found = history((0, 10), (5, 20))
    assert found.end == 20
    assert found.lag_seconds(20, 6) == 0
    assert found.lag_seconds(25, 6) == 0  # a commit may be ahead of the last sample


def test_the_time_between_two_samples_is_interpolated() -> None:
    found = history((0, 0), (10, 100), (20, 200))
    assert found.lag_seconds(100, 20) == pytest.approx(10)
    assert found.lag_seconds(150, 20) == pytest.approx(5)
    assert found.lag_seconds(50, 30) == pytest.approx(25)


def test_the_lag_of_a_stopped_group_grows_from_the_first_new_record_on() -> None:
    """The group had everything until time 100: the record came at the earliest then."""
    found = history((0, 10), (50, 10), (100, 10), (105, 20))
    assert found.lag_seconds(10, 105) == pytest.approx(5)
    assert found.lag_seconds(10, 200) == pytest.approx(100)


def test_records_from_before_the_first_sample_count_from_there() -> None:
    assert history((100, 50)).lag_seconds(7, 130) == 30


def test_without_samples_nothing_is_known() -> None:
    assert OffsetHistory().end is None
    assert OffsetHistory().lag_seconds(0, 10) == 0


def test_a_topic_that_was_created_anew_starts_over() -> None:
    found = history((0, 1000), (5, 2000), (10, 3))
    assert found.end == 3
    assert found.lag_seconds(0, 12) == 2


def test_the_history_is_bounded_and_reaches_back_to_its_start() -> None:
    found = OffsetHistory()
    for at in range(0, 100_000, 5):
        found.add(at, at * 10)
        assert len(found._offsets) <= SAMPLES_MAX
    now = 99_995
    for committed in (0, 200_000, 500_000, 999_000):
        expected = now - committed / 10
        assert found.lag_seconds(committed, now) == pytest.approx(expected, rel=0.05, abs=10)


A, B, C = ("t", 0), ("t", 1), ("t", 2)


def test_a_partition_without_a_commit_counts_from_its_first_record() -> None:
    """Four of six partitions with 3,400 records each had no commit, and were not counted."""
    assert partition_lag(None, 100, 3500) == 3400
    assert partition_lag(3000, None, 3500) == 500
    assert partition_lag(4000, None, 3500) == 0  # the end may be older than the commit
    lag = group_lag({A: 3000}, [A, B], {B: 100}, {A: 3500, B: 3500})
    assert lag == Lag(3900, is_exact=True, uncommitted=1)


def test_an_offset_that_is_not_known_makes_the_lag_a_lower_bound() -> None:
    lag = group_lag({A: 0, C: 0}, [A, B, C], {}, {A: 5, B: 7})
    assert lag == Lag(5, is_exact=False, uncommitted=1)
    assert group_lag({A: 0}, [A], {}, {}) is None
    assert Lag(1).plus(Lag(2, is_exact=False, uncommitted=3)) == Lag(3, is_exact=False, uncommitted=3)
