"""The simple assignor of KIP-932, by the properties that its docstring promises."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import Assignment
from penstock.groups.share_assignor import assign_shares

TOPICS = [bytes([n]) * 16 for n in range(3)]


def assigned(
    subscriptions: dict[str, set[bytes]],
    partitions: dict[bytes, list[int]],
    current: dict[str, Assignment] | None = None,
) -> dict[str, Assignment]:
    steps = assign_shares(subscriptions, partitions, current or {})
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, Assignment] = end.value
            return found


def counted(found: dict[str, Assignment]) -> Counter[tuple[bytes, int]]:
    return Counter((topic, index) for has in found.values() for topic, all_ in has.items() for index in all_)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, set[bytes]], dict[bytes, list[int]]]:
    sizes = draw(st.lists(st.integers(0, 6), min_size=3, max_size=3))
    partitions = {topic: list(range(size)) for topic, size in zip(TOPICS, sizes, strict=True)}
    wanted = draw(st.lists(st.sets(st.sampled_from(TOPICS)), max_size=8))
    return {f"member-{n}": topics for n, topics in enumerate(wanted)}, partitions


@given(groups(), groups())
def test_every_partition_has_a_member_and_every_member_a_partition(
    group: tuple[dict[str, set[bytes]], dict[bytes, list[int]]],
    earlier: tuple[dict[str, set[bytes]], dict[bytes, list[int]]],
) -> None:
    subscriptions, partitions = group
    found = assigned(subscriptions, partitions, assigned(*earlier))
    assert found.keys() == subscriptions.keys()
    for member, has in found.items():
        assert has.keys() <= subscriptions[member]
        assert bool(has) == any(partitions[topic] for topic in subscriptions[member])
        assert all(indexes <= set(partitions[topic]) for topic, indexes in has.items())
    subscribed = set().union(*subscriptions.values())
    wanted = {(topic, index) for topic in subscribed for index in partitions[topic]}
    assert set(counted(found)) == wanted


@given(st.integers(1, 8), st.integers(1, 12))
def test_members_are_spread_evenly_over_the_partitions_of_one_topic(count: int, members: int) -> None:
    topic = TOPICS[0]
    found = assigned({f"m{n}": {topic} for n in range(members)}, {topic: list(range(count))})
    shares = counted(found).values()
    assert max(shares) - min(shares) <= 1
    sizes = [len(has[topic]) for has in found.values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_an_assignment_of_the_same_group_stays(
    group: tuple[dict[str, set[bytes]], dict[bytes, list[int]]],
) -> None:
    """Members with the same topics: others may move once, because partitions are counted over all topics."""
    subscriptions, partitions = group
    same = {member: set(TOPICS) for member in subscriptions}
    first = assigned(same, partitions)
    assert assigned(same, partitions, first) == first
