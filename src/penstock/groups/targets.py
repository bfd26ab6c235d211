"""The target assignment of a consumer group for a group epoch.

The target of a small group is computed in the turn that needs it. The target of a large group is computed a
few members per turn, so that other requests are served in between (Kafka uses another thread). Until it is
complete, members go on with the previous target. They also do while the previous target is too recent for a
new one. A target is written as a whole. Changes during the computation raise the group epoch, so another
target follows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from penstock.groups.assignors import ASSIGNORS, SLICE, Assignment, MemberSpec
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
    encode_record,
)
from penstock.wire.schema import Struct

__all__ = ["TARGET", "Targets", "target_record"]

#: the kind of the timer, per group, for the next turn of a computation
TARGET: Final = "consumer-target"
#: the largest group whose target is computed in one turn
AT_ONCE_MAX: Final = 64
#: slices of a computation per turn, and the pause between two turns
SLICES_PER_TURN: Final = 2
PAUSE_MS: Final = 1
_DONE: Final = object()


class Targets:
    """Computes the targets of one shard's consumer groups."""

    __slots__ = ("_computing", "_ledger")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        #: running computations of large groups, by group id
        self._computing: dict[str, tuple[ConsumerGroup, Iterator[None]]] = {}

    def assign(self, group: ConsumerGroup) -> None:
        """Compute a target for the group epoch, unless the last target is too recent."""
        if group.assignment_epoch >= group.epoch or not group.members:
            return
        interval_ms = self._ledger.env.settings_of(group.id).consumer_assignment_interval_ms
        too_recent = group.assignment_ms and self._ledger.now_ms < group.assignment_ms + interval_ms
        # A sole member has no other member to disturb. With a regular expression it waits for members that
        # join with it: its first target, made before the expression was resolved, is too recent.
        if too_recent and (len(group.members) > 1 or group.patterns):
            return
        if len(group.members) <= AT_ONCE_MAX:
            self._stop(group)
            for _ in self._compute(group):
                continue
        elif self._computing.get(group.id, (None,))[0] is not group:
            self._begin(group, self._compute(group))

    def resume(self, group_id: str) -> None:
        """The next turn of a computation. It ends if the group was deleted or replaced meanwhile."""
        group, computation = self._computing.pop(group_id)
        if self._ledger.groups.get(group_id) is not group:
            return
        for _ in range(SLICES_PER_TURN):
            if next(computation, _DONE) is _DONE:
                return
        self._begin(group, computation)

    def _begin(self, group: ConsumerGroup, computation: Iterator[None]) -> None:
        self._computing[group.id] = group, computation
        self._ledger.timers.schedule((TARGET, group.id), PAUSE_MS)

    def _stop(self, group: ConsumerGroup) -> None:
        if self._computing.pop(group.id, None) is not None:
            self._ledger.timers.cancel((TARGET, group.id))

    def _compute(self, group: ConsumerGroup) -> Iterator[None]:
        epoch = group.epoch
        settings = self._ledger.env.settings_of(group.id)
        assignor = ASSIGNORS[group.preferred_assignor() or settings.consumer_assignors[0]]
        members, topics = yield from self._specs(group)
        found = yield from assignor(members, topics)
        changed: list[tuple[tuple[bytes, bytes | None], Struct, Struct]] = []
        for number, (member_id, target) in enumerate(found.items(), 1):
            if target != members[member_id].target:
                record = target_record(group.id, member_id, target)
                changed.append((encode_record(*record), *record))
            if not number % SLICE:
                yield
        self._write(group, epoch, changed)

    def _write(
        self,
        group: ConsumerGroup,
        epoch: int,
        changed: list[tuple[tuple[bytes, bytes | None], Struct, Struct]],
    ) -> None:
        if not group.members:
            return
        for encoded, key, value in changed:
            assert isinstance(key, ConsumerGroupTargetAssignmentMemberKey)
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
                found = [image.topics[name] for name in group.topics_of(member) if name in image.topics]
                topics |= {topic.id: len(topic.partitions) for topic in found}
                ids = known[subscription] = frozenset(topic.id for topic in found)
            specs[member.id] = MemberSpec(member.instance_id, ids, group.target.get(member.id, {}))
            if not number % SLICE:
                yield
        return specs, topics


def target_record(
    group_id: str, member_id: str, target: Assignment
) -> tuple[ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue]:
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in sorted(target.items())
            ]
        ),
    )
