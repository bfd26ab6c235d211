from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.idempotent_keys import KEY_BYTES, SeenKeys, stored_key


def test_a_key_is_seen_within_the_window() -> None:
    keys = SeenKeys(window_ms=100, limit=10)
    keys.add(b"a", 1000, 1000)
    assert keys.is_seen(b"a", 1099)
    assert not keys.is_seen(b"a", 1100)
    assert not keys.is_seen(b"b", 1000)


def test_keys_older_than_the_window_take_no_memory() -> None:
    keys = SeenKeys(window_ms=100, limit=10)
    for at in (0, 10, 20):
        keys.add(b"%d" % at, at, at)
    keys.add(b"new", 115, 115)
    assert len(keys) == 2
    keys.add(b"old", 10, 200)  # as a load may find it
    assert not keys.is_seen(b"old", 200)
    assert keys.evicted == 0


def test_a_key_that_is_processed_again_counts_from_then() -> None:
    keys = SeenKeys(window_ms=100, limit=2)
    keys.add(b"a", 0, 0)
    keys.add(b"b", 50, 50)
    keys.add(b"a", 90, 90)
    keys.add(b"c", 95, 95)
    assert keys.is_seen(b"a", 150)
    assert not keys.is_seen(b"b", 96)


def test_the_oldest_keys_go_first_and_are_counted() -> None:
    keys = SeenKeys(window_ms=1000, limit=3)
    for at in range(5):
        keys.add(b"%d" % at, at, at)
    assert [keys.is_seen(b"%d" % at, 5) for at in range(5)] == [False, False, True, True, True]
    assert keys.evicted == 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30))), st.integers(1, 5))
def test_there_are_never_more_than_the_limit(steps: list[tuple[int, int]], limit: int) -> None:
    keys = SeenKeys(window_ms=50, limit=limit)
    now = 0
    for key, passes in steps:
        now += passes
        keys.add(b"%d" % key, now, now)
        assert len(keys) <= limit
        assert keys.is_seen(b"%d" % key, now)


def test_long_keys_are_hashed() -> None:
    assert stored_key(b"x" * KEY_BYTES) == b"x" * KEY_BYTES
    long, other = stored_key(b"x" * 1000), stored_key(b"x" * 1001)
    assert len(long) == len(other) == KEY_BYTES
    assert long != other
