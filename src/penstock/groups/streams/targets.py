"""The target assignment of a streams group for a group epoch.

Like that of a consumer group (`groups/targets.py`), it is computed at once if the group is small, else a few
slices per turn. Until it is complete, members go on with the previous target. It is written as a whole.

The first target of an empty group waits for more members. While the topics of the cluster do not fit the
topology, members get no tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.groups.assignors import SLICE
from penstock.groups.computations import Computations
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import encode_record
from penstock.groups.settings import GroupSettings
from penstock.groups.streams.assignor import TaskMember, assign_tasks
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import (
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
)

__all__ = ["STREAMS_DELAY", "STREAMS_TARGET", "StreamsTargets", "assignment_configs"]

#: kinds of timers, per group: the end of the initial rebalance delay, and the next turn of a computation
STREAMS_DELAY: Final = "streams-delay"
STREAMS_TARGET: Final = "streams-target"
#: the largest group whose target is computed in one turn, and the most tasks
AT_ONCE_MAX: Final = 64
TASKS_AT_ONCE_MAX: Final = 500
_STANDBYS: Final = "num.standby.replicas"


def assignment_configs(settings: GroupSettings) -> dict[str, str]:
    """The configs that an assignment depends on, as in Kafka's records."""
    return {_STANDBYS: str(settings.streams_standby_replicas)}


class StreamsTargets:
    """Computes the targets of one shard's streams groups."""

    __slots__ = ("_ledger", "computations")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.computations: Final = Computations(ledger, STREAMS_TARGET)

    def delay_first(self, group: StreamsGroup) -> None:
        """Let the first target of a group that was empty wait for more members."""
        delay_ms = self._ledger.env.settings_of(group.id).streams_initial_rebalance_delay_ms
        key = (STREAMS_DELAY, group.id)
        if delay_ms > 0 and key not in self._ledger.timers:
            self._ledger.timers.schedule(key, delay_ms)

    def assign(self, group: StreamsGroup) -> str | None:
        """Compute a target for the group epoch. Returns the reason, as a text, if it is delayed."""
        if (STREAMS_DELAY, group.id) in self._ledger.timers:
            return "Assignment delayed due to the configured initial rebalance delay."
        if group.assignment_epoch >= group.epoch or not group.members:
            return None
        if self._is_too_recent(group):
            return "Assignment delayed due to the configured assignment interval."
        configs = group.assignment_configs
        tasks = self._count_tasks(group) * (1 + int(configs.get(_STANDBYS, 0)))
        if len(group.members) <= AT_ONCE_MAX and tasks <= TASKS_AT_ONCE_MAX:
            self.computations.stop(group)
            for _ in self._compute(group):
                continue
            return None
        if not self.computations.is_running(group):
            self.computations.begin(group, self._compute(group))
        return "Assignment delayed until the coordinator has computed it."

    def delay_ended(self, group: StreamsGroup) -> None:
        """The initial rebalance delay is over."""
        if group.configured is not None:
            self.assign(group)

    def _is_too_recent(self, group: StreamsGroup) -> bool:
        interval_ms = self._ledger.env.settings_of(group.id).streams_assignment_interval_ms
        return bool(group.assignment_ms) and self._ledger.now_ms < group.assignment_ms + interval_ms

    def _count_tasks(self, group: StreamsGroup) -> int:
        configured = group.configured
        return 0 if configured is None else sum(each.tasks for each in configured.subtopologies.values())

    def _compute(self, group: StreamsGroup) -> Iterator[None]:
        epoch, configured = group.epoch, group.configured
        is_ready = configured is not None and configured.is_ready
        topology = configured.subtopologies if configured is not None and is_ready else {}
        standbys = int(group.assignment_configs.get(_STANDBYS, 0))
        members = {m.id: TaskMember(m.process_id, group.target_of(m.id)) for m in group.members.values()}
        yield
        targets = yield from assign_tasks(members, topology, standbys)
        changed = []
        for number, (member_id, target) in enumerate(targets.items(), 1):
            if group.target.get(member_id) != target:
                key = StreamsGroupTargetAssignmentMemberKey(group_id=group.id, member_id=member_id)
                value = target.record()
                changed.append((encode_record(key, value), key, value))
            if not number % SLICE:
                yield
        for encoded, key, value in changed:
            if key.member_id in group.members:  # a member that has left must not come back
                self._ledger.write_encoded(encoded, key, value)
        if group.members:
            self._ledger.write(
                StreamsGroupTargetAssignmentMetadataKey(group_id=group.id),
                StreamsGroupTargetAssignmentMetadataValue(
                    assignment_epoch=epoch, assignment_timestamp=self._ledger.now_ms
                ),
            )
