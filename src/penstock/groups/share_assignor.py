"""The simple assignor of share groups: every partition has a member, and every member has a partition.

With more members than partitions, several members share a partition, about the same number on each. Members
keep what they have, as far as the balance allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from penstock.groups.assignors import Assignment

__all__ = ["assign_shares"]

_Partition: TypeAlias = tuple[bytes, int]


def assign_shares(
    subscriptions: Mapping[str, Iterable[_Partition]], current: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """The target of each member, by the partitions that it subscribes to."""
    wanted = {member: set(partitions) for member, partitions in sorted(subscriptions.items())}
    partitions = sorted(set().union(*wanted.values()))
    assigned: dict[str, set[_Partition]] = {member: set() for member in wanted}
    if not partitions:
        return {member: {} for member in wanted}
    members_of: dict[_Partition, int] = dict.fromkeys(partitions, 0)
    per_partition = -(-len(wanted) // len(partitions))
    per_member = -(-len(partitions) * per_partition // len(wanted))
    for member, has in assigned.items():
        for partition in _flat(current.get(member, {})):
            if (
                partition in wanted[member]
                and members_of[partition] < per_partition
                and len(has) < per_member
            ):
                has.add(partition)
                members_of[partition] += 1
    _fill_partitions(partitions, wanted, assigned, members_of)
    _fill_members(wanted, assigned, members_of)
    return {member: _grouped(has) for member, has in assigned.items()}


def _fill_partitions(
    partitions: list[_Partition],
    wanted: Mapping[str, set[_Partition]],
    assigned: dict[str, set[_Partition]],
    members_of: dict[_Partition, int],
) -> None:
    """Give each partition without a member the subscriber with the fewest partitions."""
    heap = [(len(has), member) for member, has in assigned.items()]
    heapify(heap)
    for partition in partitions:
        if members_of[partition]:
            continue
        passed: list[tuple[int, str]] = []
        while heap:
            count, member = heappop(heap)
            if partition in wanted[member]:
                assigned[member].add(partition)
                members_of[partition] += 1
                heappush(heap, (count + 1, member))
                break
            passed.append((count, member))
        for entry in passed:
            heappush(heap, entry)


def _fill_members(
    wanted: Mapping[str, set[_Partition]],
    assigned: dict[str, set[_Partition]],
    members_of: dict[_Partition, int],
) -> None:
    """Give each member without a partition the one with the fewest members."""
    heap = [(count, partition) for partition, count in members_of.items()]
    heapify(heap)
    for member, has in assigned.items():
        if has or not wanted[member]:
            continue
        passed: list[tuple[int, _Partition]] = []
        while heap:
            count, partition = heappop(heap)
            if partition in wanted[member]:
                has.add(partition)
                heappush(heap, (count + 1, partition))
                break
            passed.append((count, partition))
        for entry in passed:
            heappush(heap, entry)


def _flat(assignment: Assignment) -> Iterable[_Partition]:
    return sorted((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


def _grouped(partitions: Iterable[_Partition]) -> Assignment:
    grouped: Assignment = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, set()).add(index)
    return grouped
