"""The target assignment of a share group for a group epoch.

Like that of a consumer group (`groups/targets.py`), it is computed at once if the group is small, else a few
slices per turn. Until it is complete, members go on with the previous target. It is written as a whole.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from penstock.groups.assignors import SLICE, Assignment, Due
from penstock.groups.computations import Computations
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import encode_in_slices
from penstock.groups.share_assignor import assign_shares
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_records import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicPartitions,
)
from penstock.groups.subscriptions import existing, names_in
from penstock.groups.targets import AT_ONCE_MAX, PARTITIONS_AT_ONCE_MAX

__all__ = ["SHARE_TARGET", "ShareTargets", "share_partitions"]

#: the kind of the timer, per group, for the next turn of a computation
SHARE_TARGET: Final = "share-target"


class ShareTargets:
    """Computes the targets of one shard's share groups."""

    __slots__ = ("_ledger", "computations")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.computations: Final = Computations(ledger, SHARE_TARGET)

    def assign(self, group: ShareGroup) -> None:
        """Compute a target for the group epoch, unless the last target is too recent."""
        if group.assignment_epoch >= group.epoch or not group.members:
            return
        interval_ms = self._ledger.env.settings_of(group.id).share_assignment_interval_ms
        is_recent = group.assignment_ms and self._ledger.now_ms < group.assignment_ms + interval_ms
        if is_recent and len(group.members) > 1:
            return
        partitions = sum(map(len, group.initialized.values()))
        if len(group.members) <= AT_ONCE_MAX and partitions <= PARTITIONS_AT_ONCE_MAX:
            self.computations.stop(group)
            for _ in self._compute(group):
                continue
        elif not self.computations.is_running(group):
            if not group.assignment_epoch:
                # An empty target, for the members' first epoch: a client with epoch 0 has not joined yet.
                self._write_epoch(group, max(1, group.epoch - 1))
            self.computations.begin(group, self._compute(group))

    def _compute(self, group: ShareGroup) -> Iterator[None]:
        epoch, topics = group.epoch, self._ledger.env.image.topics
        known = existing(topics, group.named)
        subscriptions: dict[str, frozenset[bytes]] = {}
        #: most members have the same subscription: each one is resolved once
        resolved: dict[tuple[str, ...], frozenset[bytes]] = {}
        for number, member in enumerate(list(group.members.values()), 1):
            found = resolved.get(member.topics)
            if found is None:
                names = names_in(member.topics, known)
                found = frozenset(topics[name].id for name in names if name in topics)
                resolved[member.topics] = found
            subscriptions[member.id] = found
            if not number % SLICE:
                yield
        targets = yield from assign_shares(subscriptions, dict(group.initialized), dict(group.target))
        changed = []
        for number, (member_id, target) in enumerate(targets.items(), 1):
            if group.target.get(member_id) != target:
                key = ShareGroupTargetAssignmentMemberKey(group_id=group.id, member_id=member_id)
                partitions = yield from share_partitions(target)
                value = ShareGroupTargetAssignmentMemberValue(topic_partitions=partitions)
                changed.append(((yield from encode_in_slices(key, value)), key, value))
            if not number % SLICE:
                yield
        for encoded, key, value in changed:
            if key.member_id in group.members:  # a member that has left must not come back
                self._ledger.write_encoded(encoded, key, value)
        if group.members:
            self._write_epoch(group, epoch)

    def _write_epoch(self, group: ShareGroup, epoch: int) -> None:
        self._ledger.write(
            ShareGroupTargetAssignmentMetadataKey(group_id=group.id),
            ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=self._ledger.now_ms
            ),
        )


def share_partitions(assignment: Assignment) -> Generator[None, None, list[ShareTopicPartitions]]:
    """The partitions for a record; yields after some of them."""
    due = Due()
    found: list[ShareTopicPartitions] = []
    for topic_id, indexes in assignment.items():
        found.append(ShareTopicPartitions(topic_id=topic_id, partitions=sorted(indexes)))
        if due.after(len(indexes)):
            yield
    return found
