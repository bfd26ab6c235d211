"""Applies the records of share groups. A record with a value creates its group if it does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.groups.ledger import GroupLedger
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

__all__ = ["ShareReplay"]


class ShareReplay:
    """One method per kind of record."""

    __slots__ = ("_ledger", "by_key")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.by_key: dict[type[Any], Callable[[Any, Any], None]] = {
            ShareGroupMetadataKey: self._epoch,
            ShareGroupMemberMetadataKey: self._member,
            ShareGroupTargetAssignmentMetadataKey: self._target_epoch,
            ShareGroupTargetAssignmentMemberKey: self._target,
            ShareGroupCurrentMemberAssignmentKey: self._current,
            ShareGroupStatePartitionMetadataKey: self._state_partitions,
        }

    def _group(self, group_id: str, value: object | None) -> ShareGroup | None:
        group = self._ledger.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if value is None:
            return None
        made = self._ledger.groups[group_id] = ShareGroup(group_id)
        return made

    def _epoch(self, key: ShareGroupMetadataKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            del self._ledger.groups[group.id]
        else:
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _member(self, key: ShareGroupMemberMetadataKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_member(key.member_id, value)

    def _target_epoch(self, key: ShareGroupTargetAssignmentMetadataKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.assignment_epoch = 0 if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _target(self, key: ShareGroupTargetAssignmentMemberKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = {t.topic_id: set(t.partitions) for t in value.topic_partitions}

    def _current(self, key: ShareGroupCurrentMemberAssignmentKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_current(key.member_id, value)

    def _state_partitions(self, key: ShareGroupStatePartitionMetadataKey, value: Any) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_state_partitions(value)
