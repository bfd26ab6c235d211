"""Applies the records of consumer groups and share groups: epochs, members, assignments.

A record with a value creates its group if the group does not exist, or replaces one of another type. A
tombstone of a group that does not exist is ignored.

A consumer group may replace a classic group: the tombstone of a classic group comes before, and a group
without members that only commits has no record of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.groups.consumer_group import ConsumerGroup, ResolvedRegex
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

__all__ = ["Apply", "ConsumerReplay", "EpochReplay", "ShareReplay"]

G = TypeVar("G", bound=ConsumerGroup | ShareGroup)
#: applies the key and the value of a record; None is a tombstone
Apply: TypeAlias = Callable[[Any, Any], None]


class EpochReplay(Generic[G]):
    """One method per kind of record."""

    __slots__ = ("_group_type", "_ledger", "_no_epoch")

    def __init__(self, ledger: GroupLedger, group_type: type[G], no_epoch: int) -> None:
        """`no_epoch` is the assignment epoch of a group without a target."""
        self._ledger = ledger
        self._group_type: type[G] = group_type
        self._no_epoch = no_epoch

    def group(self, group_id: str, value: object | None) -> G | None:
        """The group of a record; None for a tombstone of a group that does not exist."""
        group = self._ledger.groups.get(group_id)
        if isinstance(group, self._group_type):
            return group
        if value is None:
            return None
        made = self._ledger.groups[group_id] = self._group_type(group_id)
        return made

    def epoch(self, key: Any, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is None:
            return
        if value is None:
            del self._ledger.groups[group.id]
        else:
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def member(self, key: Any, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is not None:
            group.apply_member(key.member_id, value)

    def target_epoch(self, key: Any, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is not None:
            group.assignment_epoch = self._no_epoch if value is None else value.assignment_epoch
            group.assignment_ms = 0 if value is None else value.assignment_timestamp

    def target(self, key: Any, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = {t.topic_id: set(t.partitions) for t in value.topic_partitions}

    def current(self, key: Any, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is not None:
            group.apply_current(key.member_id, value)


class ShareReplay(EpochReplay[ShareGroup]):
    """Adds the record of share partitions."""

    __slots__ = ("by_key",)

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__(ledger, ShareGroup, no_epoch=0)
        self.by_key: dict[type, Apply] = {
            ShareGroupMetadataKey: self.epoch,
            ShareGroupMemberMetadataKey: self.member,
            ShareGroupTargetAssignmentMetadataKey: self.target_epoch,
            ShareGroupTargetAssignmentMemberKey: self.target,
            ShareGroupCurrentMemberAssignmentKey: self.current,
            ShareGroupStatePartitionMetadataKey: self._state_partitions,
        }

    def _state_partitions(self, key: ShareGroupStatePartitionMetadataKey, value: Any) -> None:
        group = self.group(key.group_id, value)
        if group is not None:
            group.apply_state_partitions(value)


class ConsumerReplay(EpochReplay[ConsumerGroup]):
    """Adds the record of regular expressions."""

    __slots__ = ("by_key",)

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__(ledger, ConsumerGroup, no_epoch=-1)
        self.by_key: dict[type, Apply] = {
            ConsumerGroupMetadataKey: self.epoch,
            ConsumerGroupMemberMetadataKey: self.member,
            ConsumerGroupTargetAssignmentMetadataKey: self.target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self.target,
            ConsumerGroupCurrentMemberAssignmentKey: self.current,
            ConsumerGroupRegularExpressionKey: self._regex,
        }

    def _regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        group = self.group(key.group_id, value)
        if group is None:
            return
        if value is None:
            group.regexes.pop(key.regular_expression, None)
        else:
            group.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.version)
