"""Turns and bandwidth of copies."""

from __future__ import annotations

from random import Random

import pytest

from penstock.testing.simulation.ports import SimRng
from penstock.tiering.bandwidth import Bandwidth
from penstock.tiering.schedule import CopySchedule


def new_schedule() -> CopySchedule[str]:
    return CopySchedule(SimRng(Random(1)))


def test_turns_go_round() -> None:
    schedule, turns = new_schedule(), []
    for _ in range(6):
        key = schedule.due(["a", "b", "c"], 0.0)
        assert key is not None
        turns.append(key)
        schedule.ended(key, 0.0, failed=False)
    assert turns == ["a", "b", "c"] * 2


def test_a_key_has_one_turn_at_a_time() -> None:
    schedule = new_schedule()
    assert schedule.due(["a"], 0.0) == "a"
    assert schedule.due(["a"], 0.0) is None
    schedule.ended("a", 0.0, failed=False)
    assert schedule.due(["a"], 0.0) == "a"


def test_pauses_after_failures_double_up_to_half_a_minute_and_end_with_a_success() -> None:
    schedule, now_s, pauses = new_schedule(), 0.0, []
    for _ in range(10):
        assert schedule.due(["a"], now_s) == "a"
        pauses.append(schedule.ended("a", now_s, failed=True))
        assert schedule.due(["a"], now_s + 0.99 * pauses[-1]) is None
        now_s += pauses[-1] + 0.001
    for nth, pause_s in enumerate(pauses):
        usual_s = min(0.5 * 2**nth, 30)
        assert 0.8 * usual_s <= pause_s <= 1.2 * usual_s
    assert schedule.due(["a"], now_s) == "a"
    assert schedule.ended("a", now_s, failed=False) == 0
    assert schedule.due(["a"], now_s) == "a"


def test_others_have_their_turn_while_one_waits() -> None:
    schedule = new_schedule()
    assert schedule.due(["a", "b"], 0.0) == "a"
    schedule.ended("a", 0.0, failed=True)
    for _ in range(3):
        assert schedule.due(["a", "b"], 0.0) == "b"
        schedule.ended("b", 0.0, failed=False)


def test_keys_that_are_not_kept_are_forgotten() -> None:
    schedule = new_schedule()
    schedule.due(["a"], 0.0)
    schedule.ended("a", 0.0, failed=True)
    schedule.keep(["b"])
    assert schedule.due(["a"], 0.0) == "a"


def test_bytes_are_sent_at_the_limit() -> None:
    bandwidth = Bandwidth()
    waits = [bandwidth.reserve(100, 50, 10.0) for _ in range(3)]
    assert waits == [0.0, 2.0, 4.0]
    assert bandwidth.reserve(100, 50, 100.0) == 0.0, "unused time is not saved up"
    assert bandwidth.reserve(1, 50, 101.0) == pytest.approx(1.0)
