"""Who should read what: the assignors that run on the broker.

Each takes the members with what they subscribe to and what they were to have so far, and the partitions of
each topic; it returns what each should have. Every partition of a subscribed topic goes to exactly one of its
subscribers. The result depends on the input alone.

- `uniform` (also under the name `sticky`): as even as subscriptions allow, moving as little as possible.
- `range`: for each topic, consecutive partitions for members in order, so that topics line up.
- `roundrobin`: all partitions in turn to all members; even, and nothing stays where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

__all__ = ["ASSIGNORS", "Assignment", "MemberSpec"]

#: topic id to partitions
Assignment: TypeAlias = dict[bytes, set[int]]
_Partition: TypeAlias = tuple[bytes, int]


class MemberSpec(NamedTuple):
    """What an assignor knows of a member."""

    instance_id: str | None
    topics: frozenset[bytes]
    #: its target so far
    target: Mapping[bytes, set[int]]


Members: TypeAlias = Mapping[str, MemberSpec]
#: topic id to number of partitions
Topics: TypeAlias = Mapping[bytes, int]
Assignor: TypeAlias = Callable[[Members, Topics], dict[str, Assignment]]


def assign_range(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Static members first, by instance id: they keep their ranges whatever their member ids."""
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
    result: dict[str, Assignment] = {member: {} for member in members}
    for topic, count in topics.items():
        subscribers = [member for member in order if topic in members[member].topics]
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        start = 0
        for position, member in enumerate(subscribers):
            end = start + least + (position < extra)
            if end > start:
                result[member][topic] = set(range(start, end))
            start = end
    return result


def assign_round_robin(members: Members, topics: Topics) -> dict[str, Assignment]:
    order = sorted(members)
    result: dict[str, Assignment] = {member: {} for member in members}
    turn = 0
    for topic, partition in _partitions(topics):
        for _ in order:
            member = order[turn % len(order)]
            turn += 1
            if topic in members[member].topics:
                result[member].setdefault(topic, set()).add(partition)
                break
    return result


def assign_uniform(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Even first, sticky second."""
    if not members:
        return {}
    if len({spec.topics for spec in members.values()}) == 1:
        return _assign_alike(members, topics)
    return _assign_unlike(members, topics)


def _assign_alike(members: Members, topics: Topics) -> dict[str, Assignment]:
    """All members subscribe to the same topics: quotas say how much of its own each may keep."""
    wanted = next(iter(members.values())).topics
    topics = {topic: count for topic, count in topics.items() if topic in wanted}
    free = dict.fromkeys(_partitions(topics))
    least, extra = divmod(len(free), len(members))
    kept: dict[str, list[_Partition]] = {}
    # Whoever has most goes first: so the larger quotas go to those who would lose something otherwise.
    owned = {member: _owned(spec, topics) for member, spec in members.items()}
    for member in sorted(members, key=lambda m: (-len(owned[m]), m)):
        quota = least + (extra > 0 and len(owned[member]) > least)
        extra -= quota > least
        kept[member] = [p for p in owned[member] if p in free][:quota]
        for partition in kept[member]:
            del free[partition]
    rest = iter(free)
    for member in sorted(members, key=lambda m: (len(kept[m]), m)):
        quota = max(least, len(kept[member]))
        if quota == least and extra > 0:
            quota += 1
            extra -= 1
        kept[member] += islice(rest, quota - len(kept[member]))
    return {member: _as_assignment(partitions) for member, partitions in kept.items()}


def _assign_unlike(members: Members, topics: Topics) -> dict[str, Assignment]:
    """Keep what is valid, give the rest to whoever has least, then move from the richest while that helps."""
    subscribers = {t: sorted(m for m, spec in members.items() if t in spec.topics) for t in topics}
    has: dict[str, set[_Partition]] = {member: set() for member in members}
    taken: set[_Partition] = set()
    for member in sorted(members):
        for partition in _owned(members[member], topics):
            if partition not in taken and partition[0] in members[member].topics:
                taken.add(partition)
                has[member].add(partition)
    # Partitions that few may have go first: the others can still make up for it.
    for topic in sorted(topics, key=lambda t: (len(subscribers[t]), t)):
        if subscribers[topic]:
            heap = [(len(has[m]), m) for m in subscribers[topic]]
            heapify(heap)
            for index in range(topics[topic]):
                if (topic, index) not in taken:
                    size, member = heappop(heap)
                    has[member].add((topic, index))
                    heappush(heap, (size + 1, member))
    _even_out(has, subscribers)
    return {member: _as_assignment(partitions) for member, partitions in has.items()}


#: Rounds of moving; each halves what is uneven, roughly, and most groups need one.
_ROUNDS_MAX: Final = 16


def _even_out(has: dict[str, set[_Partition]], subscribers: Mapping[bytes, list[str]]) -> None:
    for _ in range(_ROUNDS_MAX):
        moved = False
        for member in sorted(has, key=lambda m: (-len(has[m]), m)):
            for partition in sorted(has[member]):
                poorest = min(subscribers[partition[0]], key=lambda m: (len(has[m]), m))
                if len(has[member]) - len(has[poorest]) > 1:
                    has[member].remove(partition)
                    has[poorest].add(partition)
                    moved = True
        if not moved:
            return


def _partitions(topics: Topics) -> Iterator[_Partition]:
    for topic in sorted(topics):
        for index in range(topics[topic]):
            yield topic, index


def _owned(spec: MemberSpec, topics: Topics) -> list[_Partition]:
    """What the member was to have so far and still exists, in order."""
    owned = [
        (topic, index)
        for topic, indexes in spec.target.items()
        for index in indexes
        if index < topics.get(topic, 0)
    ]
    if len(owned) > 1:
        owned.sort()
    return owned


def _as_assignment(partitions: list[_Partition] | set[_Partition]) -> Assignment:
    result: Assignment = {}
    for topic, index in partitions:
        result.setdefault(topic, set()).add(index)
    return result


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniform,
    "range": assign_range,
    "sticky": assign_uniform,
    "roundrobin": assign_round_robin,
}
