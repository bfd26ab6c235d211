"""Applies the records of share groups."""

from __future__ import annotations

from typing import Any

from penstock.groups.epoch_replay import Apply, EpochReplay
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
