"""Applies the records of streams groups.

A record with a value creates its group if the group does not exist, or replaces one of another type: a simple
group that has committed offsets only has no record of its own. A tombstone of a group that does not exist is
ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.groups.ledger import GroupLedger
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from penstock.groups.streams.tasks import TasksByRole

__all__ = ["StreamsReplay"]

#: the assignment epoch of a group whose target was deleted
_NO_EPOCH = -1


class StreamsReplay:
    """One method per kind of record."""

    __slots__ = ("_ledger", "by_key")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.by_key: dict[type, Callable[[Any, Any], None]] = {
            StreamsGroupMetadataKey: self._epoch,
            StreamsGroupMemberMetadataKey: self._member,
            StreamsGroupTargetAssignmentMetadataKey: self._target_epoch,
            StreamsGroupTargetAssignmentMemberKey: self._target,
            StreamsGroupCurrentMemberAssignmentKey: self._current,
            StreamsGroupTopologyKey: self._topology,
        }

    def _group(self, group_id: str, value: object | None) -> StreamsGroup | None:
        """The group of a record; None for a tombstone of a group that does not exist."""
        group = self._ledger.groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if value is None:
            return None
        made = self._ledger.groups[group_id] = StreamsGroup(group_id)
        return made

    def _epoch(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            del self._ledger.groups[group.id]
            return
        configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        group.apply_epoch(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)

    def _member(
        self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_member(key.member_id, value)

    def _target_epoch(
        self,
        key: StreamsGroupTargetAssignmentMetadataKey,
        value: StreamsGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.assignment_epoch = _NO_EPOCH if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _target(
        self,
        key: StreamsGroupTargetAssignmentMemberKey,
        value: StreamsGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = TasksByRole.of(
                value.active_tasks, value.standby_tasks, value.warmup_tasks
            )

    def _current(
        self,
        key: StreamsGroupCurrentMemberAssignmentKey,
        value: StreamsGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_current(key.member_id, value)

    def _topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_topology(value)
