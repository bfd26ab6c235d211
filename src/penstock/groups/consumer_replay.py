"""Applies the records of consumer groups.

A consumer group may replace a classic group: the tombstone of a classic group comes before, and a group
without members that only commits has no record of its own.
"""

from __future__ import annotations

from penstock.groups.consumer_group import ConsumerGroup, ResolvedRegex
from penstock.groups.epoch_replay import Apply, EpochReplay
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

__all__ = ["ConsumerReplay"]


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
