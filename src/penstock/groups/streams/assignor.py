"""The sticky assignor of streams groups: even, and with as few moved tasks as that allows.

An active task stays where it is, else it goes to a process that has it as a standby task, and with it the
state, else to the process with the least load. A standby task is never on a process that has the task
already. The load of a process is its number of tasks for each of its members (threads).

The assignor is a generator, as those of consumer groups are: it yields after some tasks and members.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from penstock.groups.assignors import Due
from penstock.groups.streams.tasks import Tasks, TasksByRole
from penstock.groups.streams.topology import ConfiguredSubtopology

__all__ = ["TaskMember", "assign_tasks"]

#: subtopology id, partition
_Task: TypeAlias = tuple[str, int]
#: the work for a task, in units of the work for a partition in the assignors of consumer groups
_PER_TASK: Final = 5


class TaskMember(NamedTuple):
    """The input of the assignor about one member."""

    process_id: str
    #: its present target
    target: TasksByRole


class _Process:
    """The members of a process, and their tasks so far."""

    __slots__ = ("_heap", "counts", "id", "tasks")

    def __init__(self, id: str) -> None:
        self.id = id
        #: members to their number of tasks
        self.counts: dict[str, int] = {}
        self.tasks: set[_Task] = set()
        #: of `counts`; has entries that are out of date
        self._heap: list[tuple[int, str]] = []

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.counts)

    def add_member(self, member: str) -> None:
        self.counts[member] = 0
        heappush(self._heap, (0, member))

    def add(self, member: str, task: _Task) -> int:
        """Add a task of a member. Returns the number of its tasks."""
        self.tasks.add(task)
        count = self.counts[member] = self.counts[member] + 1
        heappush(self._heap, (count, member))
        return count

    def least_loaded(self) -> str:
        """The member with the fewest tasks."""
        while True:
            count, member = self._heap[0]
            if count == self.counts[member]:
                return member
            heappop(self._heap)


class _Quota:
    """The most tasks of a member. It rises if tasks are left when members have as many as they may."""

    __slots__ = ("_members", "_tasks", "most")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.most = _even(tasks, members)

    def reached(self, tasks: int) -> None:
        """A member has got its last task if it has `most` of them now."""
        if tasks == self.most:
            self._members -= 1
            self._tasks -= tasks
            self.most = _even(self._tasks, self._members)


def _even(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


def assign_tasks(
    members: Mapping[str, TaskMember], topology: Mapping[str, ConfiguredSubtopology], standbys: int
) -> Generator[None, None, dict[str, TasksByRole]]:
    """The target of each member. `standbys` is the number of standby tasks for each task with state."""
    due = Due()
    assignor = _Assignor(members, topology, standbys)
    yield
    yield from assignor.remember(due)
    yield from assignor.assign_active(due)
    if standbys:
        yield from assignor.assign_standby(due)
    return assignor.targets


class _Assignor:
    """One assignment under way."""

    def __init__(
        self, members: Mapping[str, TaskMember], topology: Mapping[str, ConfiguredSubtopology], standbys: int
    ) -> None:
        self.targets = {member: TasksByRole({}, {}, {}) for member in sorted(members)}
        self._members = members
        self._topology = topology
        self._standbys = standbys
        active = sum(each.tasks for each in topology.values())
        stateful = sum(each.tasks for each in topology.values() if each.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + standbys * stateful, len(members))
        self._processes: dict[str, _Process] = {}
        for member in self.targets:
            process = members[member].process_id
            self._processes.setdefault(process, _Process(process)).add_member(member)
        self._had_active: dict[_Task, str] = {}
        self._had_standby: dict[_Task, list[str]] = {}

    def remember(self, due: Due) -> Iterator[None]:
        """Find the members that have each task."""
        for member in self.targets:
            target = self._members[member].target
            for subtopology, indexes in target.active.items():
                for index in indexes:
                    self._had_active[subtopology, index] = member
                if due.spent(len(indexes)):
                    yield
            for subtopology, indexes in target.standby.items():
                for index in indexes:
                    self._had_standby.setdefault((subtopology, index), []).append(member)
                if due.spent(len(indexes)):
                    yield

    def assign_active(self, due: Due) -> Iterator[None]:
        tasks = [(name, index) for name, each in self._topology.items() for index in range(each.tasks)]
        tasks.sort(key=lambda task: (task[1], task[0]))
        moving: list[_Task] = []
        for task in tasks:
            member = self._had_active.get(task)
            if member is not None and self._count(member) < self._active_quota.most:
                self._add_active(member, task)
            else:
                moving.append(task)
            if due.spent(_PER_TASK):
                yield
        left: list[_Task] = []
        for task in moving:
            member = self._least_loaded(self._had_standby.get(task))
            if member is not None and self._count(member) < self._active_quota.most:
                self._add_active(member, task)
            else:
                left.append(task)
            if due.spent(_PER_TASK):
                yield
        heap = self._by_load()
        for task in sorted(left):
            _, _, process = heappop(heap)
            self._add_active(process.least_loaded(), task)
            heappush(heap, (process.load, process.id, process))
            if due.spent(_PER_TASK):
                yield

    def assign_standby(self, due: Due) -> Iterator[None]:
        tasks = [
            (name, index)
            for name, each in self._topology.items()
            if each.is_stateful
            for index in range(each.tasks)
        ]
        tasks.sort(key=lambda task: (task[1], task[0]), reverse=True)
        #: tasks that lack standby tasks to their number
        left: dict[_Task, int] = {}
        for task in tasks:
            for done in range(self._standbys):
                member = self._previous(task)
                if member is None:
                    left[task] = self._standbys - done
                    break
                self._add_standby(member, task)
            if due.spent(_PER_TASK):
                yield
        heap = self._by_load()
        for task in sorted(left, reverse=True):
            for _ in range(left[task]):
                if not self._add_to_least_loaded(heap, task):
                    break
                if due.spent(_PER_TASK):
                    yield

    def _previous(self, task: _Task) -> str | None:
        """A member with room, on a process without the task, that had it: as active or as standby task."""
        active = self._had_active.get(task)
        if active is not None and self._has_room(active, task):
            return active
        standby = [m for m in self._had_standby.get(task, ()) if task not in self._process(m).tasks]
        member = self._least_loaded(standby)
        return member if member is not None and self._has_room(member, task) else None

    def _has_room(self, member: str, task: _Task) -> bool:
        return task not in self._process(member).tasks and self._count(member) < self._quota.most

    def _add_to_least_loaded(self, heap: list[tuple[float, str, _Process]], task: _Task) -> bool:
        """Add a standby task to the process with the least load that does not have the task."""
        passed = []
        found = False
        while heap and not found:
            load, name, process = heappop(heap)
            if task not in process.tasks:
                self._add_standby(process.least_loaded(), task)
                load, found = process.load, True
            passed.append((load, name, process))
        for entry in passed:
            heappush(heap, entry)
        return found

    def _by_load(self) -> list[tuple[float, str, _Process]]:
        heap = [(process.load, process.id, process) for process in self._processes.values()]
        heapify(heap)
        return heap

    def _process(self, member: str) -> _Process:
        return self._processes[self._members[member].process_id]

    def _count(self, member: str) -> int:
        return self._process(member).counts[member]

    def _least_loaded(self, members: list[str] | None) -> str | None:
        """The member with the least load of its process, and of itself; None without members."""
        if not members:
            return None
        return min(members, key=lambda member: (self._process(member).load, self._count(member), member))

    def _add_active(self, member: str, task: _Task) -> None:
        count = self._add(self.targets[member].active, member, task)
        self._active_quota.reached(count)

    def _add_standby(self, member: str, task: _Task) -> None:
        self._add(self.targets[member].standby, member, task)

    def _add(self, tasks: Tasks, member: str, task: _Task) -> int:
        count = self._process(member).add(member, task)
        tasks.setdefault(task[0], set()).add(task[1])
        self._quota.reached(count)
        return count
