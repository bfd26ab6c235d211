"""The simple assignor of share groups: every partition has a member, and every member has a partition.

With more members than partitions, several members share a partition, about the same number on each. Members
keep what they have, as far as the balance allows.

The assignor is a generator, as those of consumer groups are: it yields after some partitions and members.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from penstock.groups.assignors import Assignment, Due

__all__ = ["assign_shares"]

#: topic id to partition to the number of its members
_Shared: TypeAlias = dict[bytes, dict[int, int]]


def assign_shares(
    subscriptions: Mapping[str, Collection[bytes]],
    partitions: Mapping[bytes, Collection[int]],
    current: Mapping[str, Assignment],
) -> Generator[None, None, dict[str, Assignment]]:
    """The target of each member, by the topics that it subscribes to, and the partitions of topics."""
    due = Due()
    members = {member: sorted(topics) for member, topics in sorted(subscriptions.items())}
    subscribers: dict[bytes, list[str]] = {}
    for member, topics in members.items():
        for topic in topics:
            if partitions.get(topic):
                subscribers.setdefault(topic, []).append(member)
        if due.after(len(topics)):
            yield
    shared: _Shared = {topic: dict.fromkeys(sorted(partitions[topic]), 0) for topic in sorted(subscribers)}
    assigned: dict[str, Assignment] = {member: {} for member in members}
    number = sum(map(len, shared.values()))
    if not number:
        return assigned
    yield
    sizes = dict.fromkeys(members, 0)
    per_partition = -(-len(members) // number)
    per_member = -(-number * per_partition // len(members))
    for member in members:
        wanted = subscriptions[member]
        for topic, indexes in sorted(current.get(member, {}).items()):
            counts = shared.get(topic, {}) if topic in wanted else {}
            for index in sorted(indexes):
                if counts.get(index, per_partition) < per_partition and sizes[member] < per_member:
                    _add(assigned[member], topic, index)
                    sizes[member] += 1
                    counts[index] += 1
                if due.spent(1):
                    yield
        if due.after(0):
            yield
    yield from _fill_partitions(subscribers, assigned, sizes, shared, due)
    yield from _fill_members(members, assigned, shared, due)
    return {member: dict(sorted(has.items())) for member, has in assigned.items()}


def _fill_partitions(
    subscribers: Mapping[bytes, list[str]],
    assigned: dict[str, Assignment],
    sizes: dict[str, int],
    shared: _Shared,
    due: Due,
) -> Iterator[None]:
    """Give each partition without a member the subscriber with the fewest partitions."""
    for topic, counts in shared.items():
        heap = [(sizes[member], member) for member in subscribers[topic]]
        heapify(heap)
        for index, members in counts.items():
            if not members:
                size, member = heappop(heap)
                _add(assigned[member], topic, index)
                counts[index] = 1
                sizes[member] = size + 1
                heappush(heap, (size + 1, member))
            if due.spent(1):
                yield
        if due.after(len(heap)):
            yield


def _fill_members(
    members: Mapping[str, list[bytes]], assigned: dict[str, Assignment], shared: _Shared, due: Due
) -> Iterator[None]:
    """Give each member without a partition the one with the fewest members."""
    heaps: dict[bytes, list[tuple[int, int]]] = {}
    for topic, counts in shared.items():
        heaps[topic] = [(count, index) for index, count in counts.items()]
        heapify(heaps[topic])
        if due.after(len(counts)):
            yield
    for member, topics in members.items():
        found = [topic for topic in topics if topic in heaps]
        if not assigned[member] and found:
            count, topic, index = min((heaps[topic][0][0], topic, heaps[topic][0][1]) for topic in found)
            _add(assigned[member], topic, index)
            heappop(heaps[topic])
            heappush(heaps[topic], (count + 1, index))
        if due.after(len(topics)):
            yield


def _add(assignment: Assignment, topic: bytes, index: int) -> None:
    indexes = assignment.get(topic)
    if indexes is None:
        assignment[topic] = {index}
    else:
        indexes.add(index)
