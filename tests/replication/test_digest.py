"""Bytes that differ between replicas are found, located, and judged by the majority."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER
from penstock.replication.digest import Comparison, LogDigest, Mismatch, OffsetRange, judge

LEAF = 4
WHOLE = OffsetRange(0, 64)


def batch(base: int, records: int = 1, body: bytes = b"") -> bytes:
    return HEADER.pack(base, 49 + len(body), 0, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records) + body


def digest_of(*pieces: bytes) -> LogDigest:
    digest = LogDigest(LEAF)
    for piece in pieces:
        digest.add(memoryview(piece))
    return digest


def compare(logs: dict[int, LogDigest], replicas: tuple[int, ...] = (1, 2, 3)) -> list[Mismatch]:
    comparison = Comparison(WHOLE, replicas, LEAF)
    while (offsets := comparison.next_range) is not None:
        comparison.compared({replica: log.of(offsets) for replica, log in logs.items()})
    return comparison.mismatches


@given(st.sets(st.integers(0, 19)))
def test_segment_boundaries_do_not_matter(cuts: set[int]) -> None:
    batches = [batch(3 * i, 3) for i in range(20)]
    edges = [0, *sorted(cuts), 20]
    pieces = [b"".join(batches[a:b]) for a, b in pairwise(edges)]
    assert digest_of(*pieces).of(WHOLE) == digest_of(b"".join(batches)).of(WHOLE)


@given(st.integers(0, 39), st.integers(0, 60))
def test_one_changed_byte_is_located_and_the_majority_is_right(which: int, byte: int) -> None:
    batches = [batch(i) for i in range(40)]
    bad = bytearray(batches[which])
    position = byte if byte > 11 else 12 + byte  # leaving base offset and length, by which batches are found
    bad[position] ^= 1
    good = digest_of(*batches)
    corrupt = digest_of(*batches[:which], bytes(bad), *batches[which + 1 :])

    start = which // LEAF * LEAF
    expected = Mismatch(OffsetRange(start, start + LEAF), frozenset({1, 3}), frozenset({2}))
    assert compare({1: good, 2: corrupt, 3: good}) == [expected]


def test_a_batch_too_many_is_a_difference_even_where_others_have_nothing() -> None:
    found = compare({1: digest_of(), 2: digest_of(batch(9)), 3: digest_of()})
    assert [m.offsets for m in found] == [OffsetRange(8, 12)]


def test_all_differences_are_found_in_order() -> None:
    good = digest_of(*(batch(i) for i in range(64)))
    other = digest_of(*(batch(i, body=b"!" if i in (1, 33, 63) else b"") for i in range(64)))
    assert [m.offsets.start for m in compare({1: good, 2: good, 3: other})] == [0, 32, 60]


def test_equal_logs_cost_one_question() -> None:
    comparison = Comparison(WHOLE, (1, 2), LEAF)
    comparison.compared({1: b"x", 2: b"x"})
    assert comparison.next_range is None
    assert Comparison(OffsetRange(8, 8), (1, 2), LEAF).next_range is None


def test_ranges_are_widened_to_the_grid() -> None:
    assert Comparison(OffsetRange(5, 13), (1,), LEAF).next_range == OffsetRange(4, 16)


def test_a_corrupt_minority_never_spreads() -> None:
    """A majority of those that answered is not enough: it has to be one of all replicas."""
    nobody: frozenset[int] = frozenset()
    five = (1, 2, 3, 4, 5)
    assert judge(WHOLE, (1, 2), {1: b"a", 2: b"b"}) == Mismatch(WHOLE, nobody, nobody)
    assert judge(WHOLE, (1, 2, 3), {1: b"a", 2: b"b", 3: b"c"}) == Mismatch(WHOLE, nobody, nobody)
    assert judge(WHOLE, five, {1: b"a", 2: b"a", 3: b"b"}) == Mismatch(WHOLE, nobody, nobody)
    assert judge(WHOLE, five, {1: b"a", 2: b"a", 3: b"b", 4: b"a"}) == Mismatch(
        WHOLE, frozenset({1, 2, 4}), frozenset({3})
    )


def test_bytes_that_are_no_batches_are_corrupt() -> None:
    with pytest.raises(CorruptMessage):
        digest_of(bytes(64))
