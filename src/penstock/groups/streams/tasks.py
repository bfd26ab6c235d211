"""Tasks of a streams group. A task is a subtopology and a partition; it is active, standby or warm-up.

A target has tasks by role. A member has active tasks with the epoch in which each was assigned: a commit
with an older epoch is stale for that task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from penstock.groups.streams.records import (
    CurrentTaskIds,
    StreamsGroupTargetAssignmentMemberValue,
    TargetTaskIds,
)

__all__ = ["NO_TASKS", "NO_TASKS_WITH_EPOCHS", "EpochTasks", "Tasks", "TasksByRole", "TasksWithEpochs"]

#: subtopology id to partitions
Tasks: TypeAlias = dict[str, set[int]]
#: subtopology id to partition to the epoch in which the task was assigned
EpochTasks: TypeAlias = dict[str, dict[int, int]]


class _TaskIds(Protocol):
    subtopology_id: str
    partitions: list[int]


class TasksByRole(NamedTuple):
    """Tasks of a target, or those that a member reports."""

    active: Tasks
    standby: Tasks
    warmup: Tasks

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    @classmethod
    def of(
        cls, active: Iterable[_TaskIds], standby: Iterable[_TaskIds], warmup: Iterable[_TaskIds]
    ) -> TasksByRole:
        return cls(tasks_of(active), tasks_of(standby), tasks_of(warmup))

    def record(self) -> StreamsGroupTargetAssignmentMemberValue:
        return StreamsGroupTargetAssignmentMemberValue(
            active_tasks=_target_ids(self.active),
            standby_tasks=_target_ids(self.standby),
            warmup_tasks=_target_ids(self.warmup),
        )


class TasksWithEpochs(NamedTuple):
    """Tasks that a member has, or has to revoke."""

    active: EpochTasks
    standby: Tasks
    warmup: Tasks

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    @classmethod
    def from_record(
        cls,
        active: Iterable[CurrentTaskIds],
        standby: Iterable[CurrentTaskIds],
        warmup: Iterable[CurrentTaskIds],
        member_epoch: int,
    ) -> TasksWithEpochs:
        """Active tasks without epochs were assigned in `member_epoch`."""
        epochs: EpochTasks = {}
        for ids in active:
            known = ids.assignment_epochs
            if known is None or len(known) != len(ids.partitions):
                known = [member_epoch] * len(ids.partitions)
            epochs[ids.subtopology_id] = dict(zip(ids.partitions, known, strict=True))
        return cls(epochs, tasks_of(standby), tasks_of(warmup))

    def ids(self) -> tuple[list[CurrentTaskIds], list[CurrentTaskIds], list[CurrentTaskIds]]:
        """The parts of a record: active, standby and warm-up tasks, in order."""
        active = []
        for subtopology, epochs in sorted(self.active.items()):
            partitions = sorted(epochs)
            active.append(
                CurrentTaskIds(
                    subtopology_id=subtopology,
                    partitions=partitions,
                    assignment_epochs=[epochs[p] for p in partitions],
                )
            )
        return active, _current_ids(self.standby), _current_ids(self.warmup)

    def is_any_in(self, owned: TasksByRole) -> bool:
        """Returns true if one of these tasks is among those that the member reports, in the same role."""
        pairs: tuple[tuple[Mapping[str, Collection[int]], Tasks], ...] = (
            (self.active, owned.active),
            (self.standby, owned.standby),
            (self.warmup, owned.warmup),
        )
        return any(
            not reported.get(subtopology, frozenset()).isdisjoint(partitions)
            for tasks, reported in pairs
            for subtopology, partitions in tasks.items()
        )

    def equal(self, owned: TasksByRole) -> bool:
        """Returns true if the member reports exactly these tasks."""
        return (
            self.standby == owned.standby
            and self.warmup == owned.warmup
            and self.active.keys() == owned.active.keys()
            and all(epochs.keys() == owned.active[name] for name, epochs in self.active.items())
        )

    def contain(self, owned: TasksByRole) -> bool:
        """Returns true if all tasks that the member reports are among these, in the same role."""
        pairs: tuple[tuple[Mapping[str, Collection[int]], Tasks], ...] = (
            (self.active, owned.active),
            (self.standby, owned.standby),
            (self.warmup, owned.warmup),
        )
        return all(
            partitions.issubset(tasks.get(subtopology, ()))
            for tasks, reported in pairs
            for subtopology, partitions in reported.items()
        )


NO_TASKS = TasksByRole({}, {}, {})
NO_TASKS_WITH_EPOCHS = TasksWithEpochs({}, {}, {})


def tasks_of(ids: Iterable[_TaskIds]) -> Tasks:
    tasks: Tasks = {}
    for each in ids:
        tasks.setdefault(each.subtopology_id, set()).update(each.partitions)
    return tasks


def _target_ids(tasks: Tasks) -> list[TargetTaskIds]:
    return [TargetTaskIds(subtopology_id=s, partitions=sorted(p)) for s, p in sorted(tasks.items())]


def _current_ids(tasks: Tasks) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(subtopology_id=s, partitions=sorted(p)) for s, p in sorted(tasks.items())]
