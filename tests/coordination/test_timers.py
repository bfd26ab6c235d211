"""Timers expire at their deadline, whatever is scheduled, moved and cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordination.timers import Timers

KEYS = st.sampled_from([("a",), ("b",), ("c", "x"), ("c", "y")])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), KEYS, st.integers(0, 30)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("take"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("sleep"), st.just(("",)), st.integers(0, 20)),
    ),
    max_size=120,
)


@given(STEPS)
def test_every_timer_expires_exactly_when_it_should(steps: list[tuple[str, tuple[str, ...], int]]) -> None:
    timers = Timers()
    expected: dict[tuple[str, ...], int] = {}
    for what, key, number in steps:
        if what == "schedule":
            timers.schedule(key, number)
            expected[key] = timers.now_ms + number
        elif what == "cancel":
            timers.cancel(key)
            expected.pop(key, None)
        elif what == "take":
            timers.now_ms += number
            is_due = key in expected and expected[key] <= timers.now_ms
            assert timers.take_due(key) is is_due
            if is_due:
                del expected[key]
        else:
            timers.now_ms += number
            expired = set()
            while (gone := timers.pop_expired()) is not None:
                expired.add(gone)
            due = {key for key, at in expected.items() if at <= timers.now_ms}
            assert expired == due
            expected = {key: at for key, at in expected.items() if key not in due}
        assert len(timers) == len(expected)
        if expected:
            assert timers.next_ms is not None and timers.next_ms <= min(expected.values())


def test_a_timer_that_is_moved_often_takes_no_space() -> None:
    timers = Timers()
    for _ in range(10_000):
        timers.schedule(("k",), 10)
        timers.cancel(("k",))
    assert len(timers._heap) < 200
