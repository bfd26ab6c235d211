"""A member of a consumer group (KIP-848): its metadata and its current assignment, one record each.

`assigned` has the partitions that the member may read, `revoking` those that it has to give back. The
member owns both, so no other member gets them. For each partition the member epoch is kept in which it was
assigned: a commit with an older epoch is stale for that partition.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.coordination.outbox import EncodedRecord
from penstock.groups.assignors import Due
from penstock.groups.epoch_group import MemberState
from penstock.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)
from penstock.wire.slicing import exhausted

__all__ = ["STATIC_LEAVE_EPOCH", "ConsumerMember", "Partitions", "PreparedAssignment"]

#: topic id to partition to the epoch at which it was assigned
Partitions: TypeAlias = dict[bytes, dict[int, int]]
#: the epoch of a static member that has left and will rejoin
STATIC_LEAVE_EPOCH: Final = -2


class PreparedAssignment(NamedTuple):
    """The next assignment of a member: its record, and what the record changes.

    The first fields are what it was prepared from.
    """

    assignment_epoch: int
    target: Mapping[bytes, Collection[int]]
    topics: tuple[str, ...]
    before: Partitions
    revoked_before: Partitions
    member_epoch: int

    record: EncodedRecord
    value: ConsumerGroupCurrentMemberAssignmentValue
    assigned: Partitions
    revoking: Partitions
    #: by topic, the partitions that the member owns then, and those that it owns no longer
    owned: Mapping[bytes, dict[int, str]]
    released: Mapping[bytes, Collection[int]]

    def fits(self, member: ConsumerMember, epoch: int, target: Mapping[bytes, Collection[int]]) -> bool:
        """Returns true if nothing has changed since it was prepared, also not to something equal."""
        return (
            self.assignment_epoch == epoch
            and self.member_epoch == member.epoch
            and self.target is target
            and self.topics is member.topics
            and self.before is member.assigned
            and self.revoked_before is member.revoking
        )


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
        "prepared",
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
        #: the next assignment, if there are many partitions, and its record is encoded
        self.prepared: PreparedAssignment | None = None

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
        self.assigned = exhausted(from_record(value.assigned_partitions, value.member_epoch))
        self.revoking = exhausted(from_record(value.partitions_pending_revocation, value.member_epoch))

    def apply_prepared(self, prepared: PreparedAssignment) -> None:
        value = prepared.value
        self.epoch = value.member_epoch
        self.previous_epoch = value.previous_member_epoch
        self.state = MemberState(value.state)
        self.assigned, self.revoking = prepared.assigned, prepared.revoking

    def metadata_key(self, group_id: str) -> ConsumerGroupMemberMetadataKey:
        return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.id)

    def assignment_key(self, group_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
        return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id)


def current_assignment(
    epoch: int,
    previous_epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
    added: Mapping[bytes, list[int]] | None = None,
) -> ConsumerGroupCurrentMemberAssignmentValue:
    """The record of a member's current assignment.

    `added` are partitions of topics that are not in `assigned`; they are assigned in `epoch`.
    """
    new = [
        CurrentTopicPartitions(
            topic_id=topic_id, partitions=indexes, assignment_epochs=[epoch] * len(indexes)
        )
        for topic_id, indexes in (added or {}).items()
    ]
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        state=state,
        assigned_partitions=_to_record(assigned) + new,
        partitions_pending_revocation=_to_record(revoking),
    )


def _to_record(partitions: Mapping[bytes, Mapping[int, int]]) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in partitions.items()
    ]


def from_record(topics: Iterable[CurrentTopicPartitions], epoch: int) -> Generator[None, None, Partitions]:
    """The partitions of a record; yields after some of them.

    Old records have no assignment epochs; the member epoch takes their place.
    """
    found: Partitions = {}
    due = Due()
    for topic in topics:
        indexes, epochs = topic.partitions, topic.assignment_epochs or [epoch] * len(topic.partitions)
        if len(indexes) == len(epochs) == epochs.count(epochs[0] if epochs else epoch):
            # All of them were assigned in one epoch, as those of a member that has joined.
            found[topic.topic_id] = dict.fromkeys(indexes, epochs[0] if epochs else epoch)
        else:
            found[topic.topic_id] = dict(zip(indexes, epochs, strict=True))
        if due.after(len(indexes)):
            yield
    return found
