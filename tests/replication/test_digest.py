"""Bytes that differ between replicas are found, located, and judged by the majority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage
from penstock.records.batch import DELETE_HORIZON_BIT, HEADER
from penstock.replication.digest import (
    Mismatch,
    batch_digests,
    is_untouched,
    judge,
    leading_batches,
    mismatches,
)

NOBODY: frozenset[int] = frozenset()


def batch(base: int, records: int = 1, body: bytes = b"", *, attributes: int = 0, kept: int = -1) -> bytes:
    count = records if kept < 0 else kept
    header = (base, 49 + len(body), 0, 2, 0, attributes, records - 1, 0, 0, -1, -1, -1, count)
    return HEADER.pack(*header) + body


def compare(logs: dict[int, bytes], end: int, replicas: tuple[int, ...] = (1, 2, 3)) -> list[Mismatch]:
    """Replica 1 leads."""
    held = {replica: batch_digests(memoryview(log)) for replica, log in logs.items()}
    return mismatches(replicas, 1, held, end)


@given(st.integers(0, 39), st.integers(0, 60), st.integers(1, 3))
def test_one_changed_byte_is_located_and_the_majority_is_right(which: int, byte: int, victim: int) -> None:
    batches = [batch(i) for i in range(40)]
    bad = bytearray(batches[which])
    bad[byte if byte > 11 else 12 + byte] ^= 1  # leaving base offset and length, by which batches are found
    good = b"".join(batches)
    logs = dict.fromkeys((1, 2, 3), good)
    logs[victim] = b"".join([*batches[:which], bytes(bad), *batches[which + 1 :]])

    others = frozenset({1, 2, 3} - {victim})
    assert compare(logs, 40) == [Mismatch(which, which + 1, others, frozenset({victim}))]


def test_adjacent_ranges_are_one_difference_and_other_victims_are_another() -> None:
    good = [batch(i) for i in range(10)]
    second = [batch(i, body=b"!" if i in (3, 4) else b"") for i in range(10)]
    third = [batch(i, body=b"!" if i == 5 else b"") for i in range(10)]
    found = compare({1: b"".join(good), 2: b"".join(second), 3: b"".join(third)}, 10)
    assert [(m.start, m.end, set(m.corrupt)) for m in found] == [(3, 5, {2}), (5, 6, {3})]


def test_other_boundaries_are_a_difference_of_the_whole_range() -> None:
    good, other = batch(0, 4) + batch(4), batch(0, 2) + batch(2, 2) + batch(4)
    assert [m[:2] for m in compare({1: good, 2: other, 3: good}, 5)] == [(0, 4)]


def test_the_last_difference_ends_where_the_range_does() -> None:
    assert [m[:2] for m in compare({1: batch(0, 7), 2: batch(0, 7, b"!"), 3: batch(0, 7)}, 7)] == [(0, 7)]


def test_a_corrupt_minority_never_spreads() -> None:
    """A majority of those that answered is not enough: it has to be one of all replicas."""
    five = (1, 2, 3, 4, 5)
    assert judge((1, 2, 3), 1, {1: b"a", 2: b"a", 3: b"a"}) is None
    assert judge((1, 2, 3), 1, {1: b"a", 2: b"b"}) == (NOBODY, NOBODY)
    assert judge((1, 2, 3), 1, {1: b"a", 2: b"b", 3: b"c"}) == (NOBODY, NOBODY)
    assert judge((1, 2, 3), 1, {1: b"a", 2: b"b", 3: b"b"}) == (frozenset({2, 3}), frozenset({1}))
    assert judge(five, 1, {1: b"a", 2: b"a", 3: b"b"}) == (NOBODY, NOBODY)
    assert judge(five, 3, {1: b"a", 2: b"a", 3: b"b", 4: b"a"}) == (frozenset({1, 2, 4}), frozenset({3}))


def test_of_two_replicas_the_leader_is_trusted() -> None:
    assert judge((1, 2), 2, {1: b"a", 2: b"b"}) == (frozenset({2}), frozenset({1}))
    assert judge((1, 2), -1, {1: b"a", 2: b"b"}) == (NOBODY, NOBODY)


def test_compacted_ranges_are_not_comparable() -> None:
    def untouched(*batches: bytes) -> bool:
        return is_untouched(memoryview(b"".join(batches)), 0, 4)

    assert untouched(batch(0, 2), batch(2, 2))
    assert not untouched(batch(0, 2))
    assert not untouched(batch(2, 2))
    assert not untouched(batch(0), batch(2, 2))
    assert not untouched(batch(0, 2), batch(2, 2, kept=1))
    assert not untouched(batch(0, 2), batch(2, 2, attributes=DELETE_HORIZON_BIT))


def test_whole_batches_at_the_start() -> None:
    data = memoryview(batch(0, 2) + batch(2, 3) + batch(5)[:-1])
    assert leading_batches(data, 99) == (122, 5)
    assert leading_batches(data, 2) == (61, 2)
    assert leading_batches(data, 0) == (0, -1)


def test_bytes_that_are_no_batches_are_corrupt() -> None:
    for read in (batch_digests, lambda data: leading_batches(data, 1)):
        with pytest.raises(CorruptMessage):
            read(memoryview(bytes(64)))
