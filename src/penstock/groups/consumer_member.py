"""A member of a consumer group (KIP-848): its metadata and its current assignment, one record each.

`assigned` has the partitions that the member may read, `revoking` those that it has to give back. The
member owns both, so no other member gets them. For each partition the member epoch is kept in which it was
assigned: a commit with an older epoch is stale for that partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, TypeAlias

from penstock.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

__all__ = ["STATIC_LEAVE_EPOCH", "ConsumerMember", "MemberState", "Partitions"]

#: topic id to partition to the epoch at which it was assigned
Partitions: TypeAlias = dict[bytes, dict[int, int]]
#: the epoch of a static member that has left and will rejoin
STATIC_LEAVE_EPOCH: Final = -2


class MemberState(IntEnum):
    """The state of a member's reconciliation, numbered as in its record."""

    STABLE = 0
    #: it has partitions to revoke
    UNREVOKED = 1
    #: it waits for partitions that other members own
    UNRELEASED = 2


class ConsumerMember:
    """A member. Only replayed records change it."""

    __slots__ = (
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "epoch",
        "id",
        "instance_id",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "regex",
        "revoking",
        "state",
        "topics",
    )

    def __init__(self, id: str) -> None:
        self.id = id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topics: tuple[str, ...] = ()
        self.regex: str | None = None
        self.rebalance_timeout_ms = -1
        self.assignor: str | None = None
        #: the metadata of its JoinGroup, if it uses the classic protocol
        self.classic: ClassicMemberMetadata | None = None
        self.epoch = 0
        self.previous_epoch = -1
        self.state = MemberState.STABLE
        self.assigned: Partitions = {}
        self.revoking: Partitions = {}

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got a partition; None if it does not own the partition."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

    # -- metadata

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def apply_metadata(self, value: ConsumerGroupMemberMetadataValue) -> None:
        self.instance_id = value.instance_id
        self.rack_id = value.rack_id
        self.client_id = value.client_id
        self.client_host = value.client_host
        self.topics = tuple(value.subscribed_topic_names)
        self.regex = value.subscribed_topic_regex
        self.rebalance_timeout_ms = value.rebalance_timeout_ms
        self.assignor = value.server_assignor
        self.classic = value.classic_member_metadata

    # -- current assignment

    def apply_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> None:
        self.epoch = value.member_epoch
        self.previous_epoch = value.previous_member_epoch
        self.state = MemberState(value.state)
        self.assigned = _from_record(value.assigned_partitions, value.member_epoch)
        self.revoking = _from_record(value.partitions_pending_revocation, value.member_epoch)

    def metadata_key(self, group_id: str) -> ConsumerGroupMemberMetadataKey:
        return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id)

    def assignment_key(self, group_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
        return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id)


def current_assignment(
    epoch: int, previous_epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> ConsumerGroupCurrentMemberAssignmentValue:
    """The record of a member's current assignment."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        state=state,
        assigned_partitions=_to_record(assigned),
        partitions_pending_revocation=_to_record(revoking),
    )


def _to_record(partitions: Mapping[bytes, Mapping[int, int]]) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in partitions.items()
    ]


def _from_record(topics: Iterable[CurrentTopicPartitions], epoch: int) -> Partitions:
    """Old records have no assignment epochs; the member epoch takes their place."""
    return {
        t.topic_id: dict(zip(t.partitions, t.assignment_epochs or [epoch] * len(t.partitions), strict=True))
        for t in topics
    }
