"""What every server-side assignor has to hold, for any group; and what makes each one special."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS, SLICE, Assignment, MemberSpec, assign_range, assign_uniform

TOPICS = [bytes([n]) * 16 for n in range(4)]
Members = dict[str, MemberSpec]


@st.composite
def groups(draw: st.DrawFn, alike: bool = False) -> tuple[Members, dict[bytes, int]]:
    topics = {t: draw(st.integers(1, 7)) for t in draw(st.sets(st.sampled_from(TOPICS), min_size=1))}
    subscriptions = st.frozensets(st.sampled_from(sorted(topics)))
    common = draw(subscriptions) if alike else None
    members: Members = {}
    for number in range(draw(st.integers(1, 6))):
        wants = draw(subscriptions) if common is None else common
        members[f"m{number}"] = MemberSpec(None, wants, {})
    # A target from another time: partitions that are gone, topics that are no longer wanted.
    for topic in TOPICS:
        for index in range(draw(st.integers(0, 8))):
            owner = draw(st.sampled_from(sorted(members)))
            target = dict(members[owner].target)
            target[topic] = {*target.get(topic, ()), index}
            members[owner] = members[owner]._replace(target=target)
    return members, topics


def run(slices: Generator[None, None, dict[str, Assignment]]) -> dict[str, Assignment]:
    """The result of an assignor that runs without pauses."""
    while True:
        try:
            next(slices)
        except StopIteration as stopped:
            result: dict[str, Assignment] = stopped.value
            return result


def sizes(result: dict[str, Assignment]) -> dict[str, int]:
    return {member: sum(map(len, assignment.values())) for member, assignment in result.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_each_partition_goes_to_exactly_one_subscriber(
    name: str, group: tuple[Members, dict[bytes, int]]
) -> None:
    members, topics = group
    result = run(ASSIGNORS[name](members, topics))

    given_out = Counter((t, p) for a in result.values() for t, indexes in a.items() for p in indexes)
    wanted = {t for spec in members.values() for t in spec.topics}
    assert given_out == Counter((t, p) for t in wanted for p in range(topics[t]))
    assert all(set(a) <= members[m].topics for m, a in result.items())
    assert set(result) == set(members)


@given(group=groups(alike=True))
def test_uniform_is_even_and_moves_no_more_than_it_must(group: tuple[Members, dict[bytes, int]]) -> None:
    members, topics = group
    result = run(assign_uniform(members, topics))
    count = sizes(result)
    assert max(count.values()) - min(count.values()) <= 1

    again = run(assign_uniform({m: spec._replace(target=result[m]) for m, spec in members.items()}, topics))
    assert again == result
    # No member loses a partition while it has less than its fair share.
    least = sum(count.values()) // len(members)
    for member, spec in members.items():
        valid = {(t, p) for t, ps in spec.target.items() if t in spec.topics for p in ps if p < topics[t]}
        kept = {(t, p) for t, ps in result[member].items() for p in ps} & valid
        assert len(kept) >= min(len(valid), least)


@given(group=groups())
def test_uniform_leaves_no_member_two_behind_another_that_it_could_take_from(
    group: tuple[Members, dict[bytes, int]],
) -> None:
    members, topics = group
    result = run(assign_uniform(members, topics))
    count = sizes(result)
    for rich, assignment in result.items():
        for topic in assignment:
            for poor, spec in members.items():
                if topic in spec.topics:
                    assert count[rich] - count[poor] <= 1


def test_range_co_partitions_topics_and_keeps_static_members_in_order() -> None:
    both = frozenset(TOPICS[:2])
    members = {
        "z": MemberSpec("1", both, {}),
        "a": MemberSpec("2", both, {}),
        "b": MemberSpec(None, both, {}),
    }

    result = run(assign_range(members, {TOPICS[0]: 4, TOPICS[1]: 3}))

    assert result == {
        "z": {TOPICS[0]: {0, 1}, TOPICS[1]: {0}},
        "a": {TOPICS[0]: {2}, TOPICS[1]: {1}},
        "b": {TOPICS[0]: {3}, TOPICS[1]: {2}},
    }


def test_more_members_than_partitions() -> None:
    members = {f"m{i}": MemberSpec(None, frozenset(TOPICS[:1]), {}) for i in range(5)}
    for assignor in ASSIGNORS.values():
        assert sorted(sizes(run(assignor(members, {TOPICS[0]: 3}))).values()) == [0, 0, 1, 1, 1]


class Looked(dict[bytes, set[int]]):
    """A target that counts how often it is read."""

    looks = 0

    def __iter__(self) -> Any:
        Looked.looks += 1
        return super().__iter__()


@pytest.mark.parametrize("alike", [True, False])
def test_uniform_stops_after_every_few_members(alike: bool) -> None:
    """A slice of a large group takes no longer than a slice of a small one, so other requests do not wait."""
    size = 1000
    members = {
        f"m{n:04}": MemberSpec(None, frozenset(TOPICS[: 1 if alike else 1 + n % 2]), Looked({TOPICS[0]: {n}}))
        for n in range(size)
    }
    Looked.looks = 0
    most = before = 0
    for _ in assign_uniform(members, dict.fromkeys(TOPICS[:2], size)):
        most, before = max(most, Looked.looks - before), Looked.looks
    assert Looked.looks == size
    assert most == SLICE
