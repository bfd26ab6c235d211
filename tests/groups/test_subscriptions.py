"""The names that members subscribe to, many of which may not exist."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.subscriptions import (
    NAME_BYTES_MAX,
    NAMES_MAX,
    check_names,
    count_names,
    existing,
    hash_of,
    known_names,
    names_in,
)
from penstock.model.errors import InvalidRequest
from tests.broker.large_topics import topic_image

NAMES = st.sets(st.integers(0, 99).map("topic-{}".format))


@given(NAMES, NAMES)
def test_the_names_of_a_member_that_exist_are_found_either_way(names: set[str], known: set[str]) -> None:
    assert names_in(sorted(names), known) == sorted(names & known)
    padded = sorted(names | {f"unknown-{i}" for i in range(2000)})
    assert names_in(padded, known) == sorted(names & known)
    topics, named = dict.fromkeys(known), dict.fromkeys(padded)
    assert known_names(padded, topics, named) == known_names(sorted(names), topics, named)


@given(NAMES, NAMES)
def test_only_topics_exist(names: set[str], topics: set[str]) -> None:
    assert existing(dict.fromkeys(topics), dict.fromkeys(names)) == names & topics


def test_a_name_counts_once_for_each_member() -> None:
    counts: Counter[str] = Counter()
    count_names(counts, ("a", "b"), 1)
    count_names(counts, ("b", "c"), 1)
    count_names(counts, ("a", "b"), -1)
    assert counts == {"b": 1, "c": 1}
    assert "a" not in counts


def test_a_member_has_as_many_names_as_a_record_holds() -> None:
    check_names(None)
    check_names([])
    check_names([f"t{i}" for i in range(NAMES_MAX)])
    with pytest.raises(InvalidRequest, match="20000 names"):
        check_names([f"t{i}" for i in range(NAMES_MAX + 1)])
    check_names(["x" * (NAME_BYTES_MAX - 1)])
    with pytest.raises(InvalidRequest, match="bytes"):
        check_names(["ä" * (NAME_BYTES_MAX // 2 + 1)])


def test_the_hash_of_topics_is_that_of_earlier_releases() -> None:
    """It is in the records of groups: with another one, all groups would rebalance after an upgrade."""
    topics = [topic_image("a", 3, b"first"), topic_image("b", 70_000, b"second")]
    digest = hashlib.blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.id + len(topic.partitions).to_bytes(4, "big"))
    assert hash_of(topics) == int.from_bytes(digest.digest(), "big", signed=True)
    assert hash_of([]) == 0
