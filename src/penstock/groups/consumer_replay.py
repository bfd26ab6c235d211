"""Applies the records of consumer groups.

A record with a value creates its group if the group does not exist, or replaces a classic group: the
tombstone of a classic group comes before, and a group without members that only commits has no record of
its own. A tombstone of a group that does not exist is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.groups.consumer_group import ConsumerGroup, ResolvedRegex
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = ["ConsumerReplay"]


class ConsumerReplay:
    """One method per kind of record."""

    __slots__ = ("_ledger", "by_key")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.by_key: dict[type[Any], Callable[[Any, Any], None]] = {
            ConsumerGroupMetadataKey: self._epoch,
            ConsumerGroupMemberMetadataKey: self._member,
            ConsumerGroupTargetAssignmentMetadataKey: self._target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._target,
            ConsumerGroupCurrentMemberAssignmentKey: self._current,
            ConsumerGroupRegularExpressionKey: self._regex,
        }

    def _group(self, group_id: str, value: object | None) -> ConsumerGroup | None:
        group = self._ledger.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if value is None:
            return None
        made = self._ledger.groups[group_id] = ConsumerGroup(group_id)
        return made

    def _epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            del self._ledger.groups[group.id]
        else:
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash

    def _member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_member(key.member_id, value)

    def _target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.assignment_epoch = -1 if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = {t.topic_id: set(t.partitions) for t in value.topic_partitions}

    def _current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        group = self._group(key.group_id, value)
        if group is not None:
            group.apply_current(key.member_id, value)

    def _regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        group = self._group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.regexes.pop(key.regular_expression, None)
        else:
            group.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version)
