"""The processes that have the tasks of a streams group, or have yet to revoke them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.groups.streams.member import StreamsMember

__all__ = ["TaskOwners"]


class TaskOwners:
    """Process ids by subtopology and partition.

    Invariant: has exactly the tasks in members' `assigned` and `revoking`.
    """

    __slots__ = ("_active", "_other")

    def __init__(self) -> None:
        self._active: dict[str, dict[int, str]] = {}
        #: of standby and warm-up tasks: the number of members of each process that have the task
        self._other: dict[str, dict[int, dict[str, int]]] = {}

    def active(self, subtopology: str, partition: int) -> str | None:
        """The process with the active task."""
        return self._active.get(subtopology, {}).get(partition)

    def has_other(self, subtopology: str, partition: int, process: str) -> bool:
        """Returns true if the process has the task as a standby or warm-up task."""
        return process in self._other.get(subtopology, {}).get(partition, ())

    def add(self, member: StreamsMember) -> None:
        process = member.process_id
        for tasks in (member.assigned, member.revoking):
            for subtopology, partitions in tasks.active.items():
                self._active.setdefault(subtopology, {}).update(dict.fromkeys(partitions, process))
            for subtopology, indexes in (*tasks.standby.items(), *tasks.warmup.items()):
                by_partition = self._other.setdefault(subtopology, {})
                for index in indexes:
                    counts = by_partition.setdefault(index, {})
                    counts[process] = counts.get(process, 0) + 1

    def remove(self, member: StreamsMember) -> None:
        process = member.process_id
        for tasks in (member.assigned, member.revoking):
            for subtopology, partitions in tasks.active.items():
                self._remove_active(subtopology, partitions, process)
            for subtopology, indexes in (*tasks.standby.items(), *tasks.warmup.items()):
                self._remove_other(subtopology, indexes, process)

    def _remove_active(self, subtopology: str, partitions: Iterable[int], process: str) -> None:
        known = self._active.get(subtopology, {})
        for index in partitions:
            if known.get(index) == process:
                del known[index]
        if not known:
            self._active.pop(subtopology, None)

    def _remove_other(self, subtopology: str, partitions: Iterable[int], process: str) -> None:
        known = self._other.get(subtopology, {})
        for index in partitions:
            counts = known.get(index, {})
            left = counts.get(process, 0) - 1
            if left > 0:
                counts[process] = left
            else:
                counts.pop(process, None)
            if not counts:
                known.pop(index, None)
        if not known:
            self._other.pop(subtopology, None)
