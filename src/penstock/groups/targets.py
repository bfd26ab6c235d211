"""The target assignment of a consumer group for a group epoch.

The target of a small group is computed in the turn that needs it. The target of a large group, with many
members or many partitions, is computed a few of them per turn, so that other requests are served in between
(Kafka uses another thread). Until it is
complete, members go on with the previous target. They also do while the previous target is too recent for a
new one. A target is written as a whole. Changes during the computation raise the group epoch, so another
target follows.

A target that gives a member more than its record can have is refused for its group epoch, and not computed
again. The requests of such members fail, so their sessions expire. The others go on with the previous target.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.coordination.outbox import EncodedRecord
from penstock.groups.assignors import ASSIGNORS, SLICE, Assignment, Due, MemberSpec
from penstock.groups.computations import Computations
from penstock.groups.consumer_group import ConsumerGroup, RefusedTarget
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
    encode_in_slices,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.schema import Struct
from penstock.wire.slicing import exhausted

__all__ = ["TARGET", "ReportRefusedTarget", "Targets", "target_record"]

#: the kind of the timer, per group, for the next turn of a computation
TARGET: Final = "consumer-target"
#: the largest group whose target is computed in one turn, and the most partitions
AT_ONCE_MAX: Final = 64
PARTITIONS_AT_ONCE_MAX: Final = 2000
#: of a partition in the record of a member's assignment: its index and its epoch
PARTITION_BYTES: Final = 8
#: the record of a member's target: encoded, its key, and its value
_Change: TypeAlias = tuple[EncodedRecord, ConsumerGroupTargetAssignmentMemberKey, Struct]


class ReportRefusedTarget(NamedTuple):
    """An effect: report that a group has no target for its epoch, once for each epoch."""

    group_id: str
    epoch: int
    #: the number of members whose requests fail, and one of them
    members: int
    member_id: str
    reason: str


class Targets:
    """Computes the targets of one shard's consumer groups."""

    __slots__ = ("_ledger", "computations")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.computations: Final = Computations(ledger, TARGET)

    def assign(self, group: ConsumerGroup, member_id: str) -> None:
        """Compute a target for the group epoch, unless the last target is too recent.

        Raises UNKNOWN_SERVER_ERROR, as Kafka does, if the target was refused because of this member.
        """
        if group.assignment_epoch >= group.epoch or not group.members:
            return
        if not group.has_refused_target and not self._is_too_recent(group):
            self._begin(group)
        refused = group.refused_target
        if group.has_refused_target and refused is not None and member_id in refused.members:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, refused.reason)

    def _is_too_recent(self, group: ConsumerGroup) -> bool:
        interval_ms = self._ledger.env.settings_of(group.id).consumer_assignment_interval_ms
        if not group.assignment_ms or self._ledger.now_ms >= group.assignment_ms + interval_ms:
            return False
        # A sole member has no other member to disturb. With a regular expression it waits for members that
        # join with it: its first target, made before the expression was resolved, is too recent.
        return len(group.members) > 1 or bool(group.patterns)

    def _begin(self, group: ConsumerGroup) -> None:
        partitions = group.partition_count
        if partitions // len(group.members) > self._ledger.outbox.record_bytes_max() // PARTITION_BYTES:
            reason = f"{partitions} partitions are too many for {len(group.members)} members"
            self._refuse(group, group.epoch, list(group.members), reason)
        elif len(group.members) <= AT_ONCE_MAX and partitions <= PARTITIONS_AT_ONCE_MAX:
            self.computations.stop(group)
            for _ in self._compute(group):
                continue
        elif not self.computations.is_running(group):
            if not group.assignment_epoch:
                # An empty target, for the members' first epoch: a client with epoch 0 has not joined yet.
                self._write(group, group.epoch - 1, [])
            self.computations.begin(group, self._compute(group))

    def _refuse(self, group: ConsumerGroup, epoch: int, members: list[str], reason: str) -> None:
        group.refused_target = RefusedTarget(epoch, frozenset(members), reason)
        effect = ReportRefusedTarget(group.id, epoch, len(members), members[0], reason)
        self._ledger.after_commit(effect)

    def _compute(self, group: ConsumerGroup) -> Iterator[None]:
        epoch = group.epoch
        settings = self._ledger.env.settings_of(group.id)
        assignor = ASSIGNORS[group.preferred_assignor() or settings.consumer_assignors[0]]
        members, topics = yield from self._specs(group)
        found = yield from assignor(members, topics)
        changed: list[_Change] = []
        for number, (member_id, target) in enumerate(found.items(), 1):
            if target != members[member_id].target:
                record = yield from _target_record(group.id, member_id, target)
                changed.append(((yield from encode_in_slices(*record)), *record))
            if not number % SLICE:
                yield
        # The record of the member's assignment is twice as large.
        size_max = self._ledger.outbox.record_bytes_max() // 2
        large = {
            key.member_id: len(value or b"") for (_, value), key, _ in changed if len(value or b"") > size_max
        }
        if large:
            most = max(large.values())
            reason = f"an assignment of {2 * most} bytes is too large for a record; add members"
            self._refuse(group, epoch, list(large), reason)
        else:
            self._write(group, epoch, changed)

    def _write(
        self,
        group: ConsumerGroup,
        epoch: int,
        changed: list[_Change],
    ) -> None:
        if not group.members:
            return
        for encoded, key, value in changed:
            if key.member_id in group.members:  # a member that has left must not come back
                self._ledger.write_encoded(encoded, key, value)
        self._ledger.write(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id),
            ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=self._ledger.now_ms
            ),
        )

    def _specs(
        self, group: ConsumerGroup
    ) -> Generator[None, None, tuple[dict[str, MemberSpec], dict[bytes, int]]]:
        image = self._ledger.env.image
        topics: dict[bytes, int] = {}
        #: most members have the same subscription: each one is resolved once
        known: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        specs: dict[str, MemberSpec] = {}
        for number, member in enumerate(list(group.members.values()), 1):
            subscription = (member.topics, member.regex)
            ids = known.get(subscription)
            if ids is None:
                found = [image.topics[name] for name in group.known_topics_of(member, image)]
                topics |= {topic.id: len(topic.partitions) for topic in found}
                ids = known[subscription] = frozenset(topic.id for topic in found)
            specs[member.id] = MemberSpec(member.instance_id, ids, group.target.get(member.id, {}))
            if not number % SLICE:
                yield
        return specs, topics


def target_record(
    group_id: str, member_id: str, target: Assignment
) -> tuple[ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue]:
    return exhausted(_target_record(group_id, member_id, target))


def _target_record(
    group_id: str, member_id: str, target: Assignment
) -> Generator[
    None, None, tuple[ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue]
]:
    due = Due()
    partitions: list[TargetTopicPartitions] = []
    for topic_id, indexes in sorted(target.items()):
        partitions.append(TargetTopicPartitions(topic_id=topic_id, partitions=sorted(indexes)))
        if due.after(len(indexes)):
            yield
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
