"""Assignors that run on the broker (KIP-848).

An assignor takes the subscriptions and present targets of all members and the number of partitions of each
topic. It returns the new target of each member. Every partition of a subscribed topic goes to exactly one
of its subscribers. The result depends on the input alone.

Assignors are generators, because an assignment of a thousand members, or of many partitions, takes a while:
they yield after every few members (`SLICE`) and after some partitions (`PARTITIONS_SLICE`), so that other
requests are served in between.

- `uniform` (also named `sticky`): as even as subscriptions allow, with as few moved partitions as possible.
- `range`: for each topic, consecutive partitions to the members in order, so that topics are co-partitioned.
- `roundrobin`: all partitions in turn to all members; even, but not sticky.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

__all__ = ["ASSIGNORS", "PARTITIONS_SLICE", "SLICE", "Assignment", "Due", "MemberSpec"]

#: topic id to partitions
Assignment: TypeAlias = dict[bytes, set[int]]
_Partition: TypeAlias = tuple[bytes, int]
#: members between two yields; each takes a few microseconds
SLICE: Final = 32
#: partitions between two yields; each takes less than a microsecond
PARTITIONS_SLICE: Final = 1000


class MemberSpec(NamedTuple):
    """The input of an assignor about one member."""

    instance_id: str | None
    topics: frozenset[bytes]
    #: its present target
    target: Mapping[bytes, set[int]]


Members: TypeAlias = Mapping[str, MemberSpec]
#: topic id to number of partitions
Topics: TypeAlias = Mapping[bytes, int]
_Slices: TypeAlias = Generator[None, None, dict[str, Assignment]]
Assignor: TypeAlias = Callable[[Members, Topics], _Slices]


def assign_range(members: Members, topics: Topics) -> _Slices:
    """Static members first, by instance id: they keep their ranges whatever their member ids."""
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
    result: dict[str, Assignment] = {member: {} for member in members}
    for topic, count in topics.items():
        subscribers = [member for member in order if topic in members[member].topics]
        yield
        if not subscribers:
            continue
        least, extra = divmod(count, len(subscribers))
        start = 0
        for position, member in enumerate(subscribers):
            end = start + least + (position < extra)
            if end > start:
                result[member][topic] = set(range(start, end))
            start = end
            if position % SLICE == SLICE - 1:
                yield
    return result


def assign_round_robin(members: Members, topics: Topics) -> _Slices:
    order = sorted(members)
    result: dict[str, Assignment] = {member: {} for member in members}
    turn = 0
    for topic, partition in _partitions(topics):
        for _ in order:
            member = order[turn % len(order)]
            turn += 1
            if not turn % SLICE:
                yield
            if topic in members[member].topics:
                result[member].setdefault(topic, set()).add(partition)
                break
    return result


def assign_uniform(members: Members, topics: Topics) -> _Slices:
    """Even first, sticky second."""
    if not members:
        return {}
    if len({spec.topics for spec in members.values()}) == 1:
        return (yield from _assign_alike(members, topics))
    return (yield from _assign_unlike(members, topics))


def _assign_alike(members: Members, topics: Topics) -> _Slices:
    """For members with the same subscription: each keeps partitions of its own up to a quota."""
    wanted = next(iter(members.values())).topics
    topics = {topic: count for topic, count in topics.items() if topic in wanted}
    free: dict[_Partition, None] = {}
    partitions = _partitions(topics)
    while some := list(islice(partitions, PARTITIONS_SLICE)):
        free.update(dict.fromkeys(some))
        yield
    least, extra = divmod(len(free), len(members))
    kept: dict[str, list[_Partition]] = {}
    owned: dict[str, list[_Partition]] = {}
    due = Due()
    for member, spec in members.items():
        owned[member] = _owned(spec, topics)
        if due.after(len(owned[member])):
            yield
    # The members with most partitions come first: they get the larger quotas and lose fewer partitions.
    for member in sorted(members, key=lambda m: (-len(owned[m]), m)):
        quota = least + (extra > 0 and len(owned[member]) > least)
        extra -= quota > least
        kept[member] = [p for p in owned[member] if p in free][:quota]
        for partition in kept[member]:
            del free[partition]
        if due.after(len(owned[member])):
            yield
    rest = iter(free)
    for member in sorted(members, key=lambda m: (len(kept[m]), m)):
        quota = max(least, len(kept[member]))
        if quota == least and extra > 0:
            quota += 1
            extra -= 1
        kept[member] += islice(rest, quota - len(kept[member]))
        if due.after(len(kept[member])):
            yield
    return (yield from _as_assignments(kept))


def _assign_unlike(members: Members, topics: Topics) -> _Slices:
    """For members with different subscriptions.

    Each keeps its valid partitions. Free ones go to the member with the fewest. Then partitions move from the
    members with most to those with fewest, while that evens out the assignment.
    """
    subscribers: dict[bytes, list[str]] = {}
    for topic in topics:
        subscribers[topic] = sorted(m for m, spec in members.items() if topic in spec.topics)
        yield
    has: dict[str, set[_Partition]] = {member: set() for member in members}
    taken: set[_Partition] = set()
    due = Due()
    for member in sorted(members):
        for partition in _owned(members[member], topics):
            if partition not in taken and partition[0] in members[member].topics:
                taken.add(partition)
                has[member].add(partition)
        if due.after(len(has[member])):
            yield
    # Topics with few subscribers come first: later topics can still even out the assignment.
    for topic in sorted(topics, key=lambda t: (len(subscribers[t]), t)):
        if subscribers[topic]:
            heap = [(len(has[m]), m) for m in subscribers[topic]]
            heapify(heap)
            for index in range(topics[topic]):
                if (topic, index) not in taken:
                    size, member = heappop(heap)
                    has[member].add((topic, index))
                    heappush(heap, (size + 1, member))
                if due.spent(1):
                    yield
        yield
    yield from _even_out(has, subscribers)
    return (yield from _as_assignments(has))


#: Rounds of moves. Each roughly halves the imbalance, and most groups need one.
_ROUNDS_MAX: Final = 16


def _even_out(has: dict[str, set[_Partition]], subscribers: Mapping[bytes, list[str]]) -> Iterator[None]:
    due = Due()
    for _ in range(_ROUNDS_MAX):
        moved = False
        for member in sorted(has, key=lambda m: (-len(has[m]), m)):
            for partition in sorted(has[member]):
                fewest = min(subscribers[partition[0]], key=lambda m: (len(has[m]), m))
                if len(has[member]) - len(has[fewest]) > 1:
                    has[member].remove(partition)
                    has[fewest].add(partition)
                    moved = True
                if due.spent(1 + len(subscribers[partition[0]])):  # it has looked at all subscribers
                    yield
        if not moved:
            return


def _partitions(topics: Topics) -> Iterator[_Partition]:
    for topic in sorted(topics):
        for index in range(topics[topic]):
            yield topic, index


def _owned(spec: MemberSpec, topics: Topics) -> list[_Partition]:
    """The partitions of the member's present target that still exist, in order."""
    owned: list[_Partition] = []
    for topic in sorted(spec.target):
        count = topics.get(topic, 0)
        owned += [(topic, index) for index in sorted(spec.target[topic]) if index < count]
    return owned


def _as_assignments(has: Mapping[str, Collection[_Partition]]) -> _Slices:
    result: dict[str, Assignment] = {}
    for number, (member, partitions) in enumerate(has.items(), 1):
        assignment = result[member] = {}
        for count, (topic, index) in enumerate(partitions, 1):
            assignment.setdefault(topic, set()).add(index)
            if not count % PARTITIONS_SLICE:
                yield
        if not number % SLICE:
            yield
    return result


class Due:
    """Counts members and their partitions, until it is time to yield."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PARTITIONS_SLICE

    def after(self, partitions: int) -> bool:
        """Returns true if a member with so many partitions was the last one of a slice."""
        return self.spent(partitions + PARTITIONS_SLICE // SLICE)

    def spent(self, steps: int) -> bool:
        """Returns true if so many steps, each of about a microsecond, were the last ones of a slice."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = PARTITIONS_SLICE
        return True


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniform,
    "range": assign_range,
    "sticky": assign_uniform,
    "roundrobin": assign_round_robin,
}
