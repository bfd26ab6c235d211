"""Members of a streams group (KIP-1071) do whatever they like; the group's promises hold all the same.

- An active task is never in two processes, and a process never has a task in two roles, whatever the epochs.
- Once all members follow the protocol, all tasks are assigned, and evenly.
- What the log says is what the group is, always.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.groups.settings import GroupSettings
from penstock.groups.streams import targets
from penstock.groups.streams.group import StreamsGroup
from penstock.model.errors import ErrorCode
from penstock.wire.apis.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from tests.amounts import amount
from tests.groups.streams.driver import Driver
from tests.groups.streams.topologies import heartbeat, joining, tasks_of, word_count

Tasks = dict[str, set[int]]


class Member:
    """The state of one client. It takes a while to revoke tasks."""

    def __init__(self, name: str, process: str) -> None:
        self.name = name
        self.process = process
        self.forget()

    def forget(self) -> None:
        self.epoch = 0
        self.has: tuple[Tasks, Tasks] = ({}, {})
        self.assigned: tuple[Tasks, Tasks] = ({}, {})

    def reconcile(self) -> None:
        self.has = self.assigned


class Members:
    """A group, and clients that lose responses, crash and dawdle at random."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        settings = GroupSettings(
            streams_initial_rebalance_delay_ms=self.rng.choice([0, 3000]),
            streams_assignment_interval_ms=0,
            streams_standby_replicas=self.rng.randrange(3),
        )
        self.driver = Driver(settings, {"lines": 4, "counts-repartition": 4, "counts-changelog": 4})
        self.members = [Member(f"m{n}", f"p{n % 3}") for n in range(5)]

    def beat(self, member: Member, loses_response: bool = False) -> None:
        if member.epoch:
            request = heartbeat(member.name, member.epoch, *member.has)
        else:
            request = joining(member.name, word_count(), member.process)
        pending = self.driver.send(request)
        if loses_response:
            return
        if pending.error:
            assert pending.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            member.forget()
            return
        response = pending.response
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        member.epoch = response.member_epoch
        if response.active_tasks is not None:
            member.assigned = tasks_of(response.active_tasks) or {}, tasks_of(response.standby_tasks) or {}

    def step(self) -> None:
        member = self.rng.choice(self.members)
        action = self.rng.random()
        if action < 0.6:
            self.beat(member, loses_response=self.rng.random() < 0.1)
        elif action < 0.8:
            member.reconcile()
        elif action < 0.85 and member.epoch:
            self.driver.send(heartbeat(member.name, -1))
            member.forget()
        elif action < 0.9:
            member.forget()
        elif action < 0.93:
            self.driver.restart()
        elif action < 0.96:
            partitions = len(self.driver.image.topics["lines"].partitions)
            for name in ("lines", "counts-repartition", "counts-changelog"):
                self.driver.add_topic(name, min(partitions + 1, 7))
        else:
            self.driver.sleep(self.rng.choice([1000, 20_000]))
        if self.driver.shard.group_count:
            check(self.driver.group())

    def settle(self) -> None:
        """All members follow the protocol."""
        for _ in range(30):
            for member in self.members:
                self.beat(member)
                member.reconcile()
            self.driver.sleep(500)
            check(self.driver.group())


def check(group: StreamsGroup) -> None:
    """An active task has one process at most, and a process has a task in one role only."""
    active = Counter(
        (name, index)
        for member in group.members.values()
        for tasks in (member.assigned, member.revoking)
        for name, indexes in tasks.active.items()
        for index in indexes
    )
    assert not active or max(active.values()) == 1
    for process in {member.process_id for member in group.members.values()}:
        has = Counter(
            (name, index)
            for member in group.members.values()
            if member.process_id == process
            for tasks in (member.assigned, member.revoking)
            for role in (tasks.active, tasks.standby, tasks.warmup)
            for name, indexes in role.items()
            for index in indexes
        )
        assert not has or max(has.values()) == 1


@pytest.mark.parametrize("is_large", [False, True], ids=["at once", "in slices"])
def test_groups_of_careless_members_converge(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(targets, "TASKS_AT_ONCE_MAX", 0)
    for seed in range(amount(12)):
        members = Members(seed)
        for _ in range(60):
            members.step()
        members.settle()
        group = members.driver.group()
        assert group.state_name == "Stable", seed
        sizes = [sum(map(len, member.assigned[0].values())) for member in members.members]
        tasks = 2 * len(members.driver.image.topics["lines"].partitions)
        assert sum(sizes) == tasks, seed
        standbys = sum(len(m.assigned[1].get("1", ())) for m in members.members)
        assert standbys == members.driver.env.settings.streams_standby_replicas * tasks // 2, seed
