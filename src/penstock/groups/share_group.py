"""The state of a share group (KIP-932): members, epochs, target assignment, and its share partitions.

Several members may have the same partition. A member gets its target at once: there is nothing to revoke.
Only replayed records change the group, except for `image_offset`, the offset of the image with which the
subscribed topics were compared last, and `initializing_ms`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.coordination.outbox import EncodedRecord
from penstock.groups.assignors import Assignment, Due
from penstock.groups.epoch_group import EpochGroup
from penstock.groups.group import PartitionCheck
from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
)
from penstock.groups.subscriptions import count_names, existing, hash_of
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.schema import Struct

__all__ = ["PROTOCOL_TYPE", "PreparedShares", "ShareGroup", "ShareMember", "SharePartitions"]

PROTOCOL_TYPE: Final = "share"


class SharePartitions(NamedTuple):
    """The share partitions of a group, of which a record has all. It is replaced, and never changed."""

    #: topics to the partitions whose state is being created, and whose state exists
    initializing: Assignment
    initialized: Assignment
    #: topics whose state is being deleted
    deleting: Set[bytes]

    def number(self) -> int:
        return sum(map(len, self.initializing.values())) + sum(map(len, self.initialized.values()))

    def record(
        self, names: Mapping[bytes, str]
    ) -> Generator[None, None, ShareGroupStatePartitionMetadataValue]:
        """Their record; yields after some of them. `names` has the known names of topics."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=(yield from _with_names(self.initializing, names)),
            initialized_topics=(yield from _with_names(self.initialized, names)),
            deleting_topics=[
                ShareTopicInfo(topic_id=t, topic_name=names.get(t, "")) for t in sorted(self.deleting)
            ],
        )


def _with_names(
    partitions: Assignment, names: Mapping[bytes, str]
) -> Generator[None, None, list[ShareTopicPartitionsInfo]]:
    found: list[ShareTopicPartitionsInfo] = []
    due = Due()
    for topic_id, indexes in partitions.items():
        if indexes:
            name = names.get(topic_id, "")
            found.append(
                ShareTopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
        if due.after(len(indexes)):
            yield
    return found


#: The share partitions of a group, epochs of the group, and the offset of the image. While they are the same,
#: a check of all partitions has the same result.
State: TypeAlias = tuple[SharePartitions, int, int] | tuple[SharePartitions, int, int, int]


class PreparedShares(NamedTuple):
    """The next assignment of a member, with its record; the other fields are what it was prepared from."""

    record: EncodedRecord
    assigned: Assignment
    assignment_epoch: int
    target: Assignment
    before: Assignment
    topics: tuple[str, ...]
    member_epoch: int

    def fits(self, group: ShareGroup, member: ShareMember) -> bool:
        """Returns true if nothing has changed since it was prepared, also not to something equal."""
        return (
            self.assignment_epoch == group.assignment_epoch
            and self.member_epoch == member.epoch
            and self.target is group.target.get(member.id)
            and self.before is member.assigned
            and self.topics is member.topics
        )


class ShareMember:
    """A member of a share group."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "epoch",
        "id",
        "prepared",
        "previous_epoch",
        "rack_id",
        "settled_in",
        "topics",
    )

    def __init__(self, id: str) -> None:
        self.id = id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topics: tuple[str, ...] = ()
        self.epoch = 0
        self.previous_epoch = -1
        self.assigned: Assignment = {}
        #: the target, the subscription and the rest for which `assigned` was found right
        self.settled_in: object = None
        #: the next assignment, if there are many partitions, and its record is encoded
        self.prepared: PreparedShares | None = None

    def metadata(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
        )


class ShareGroup(EpochGroup[ShareMember]):
    """A share group. See the module's docstring."""

    type: Final = "share"
    shown_protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, id: str) -> None:
        super().__init__(id, epoch=0, assignment_epoch=0)
        self.target: dict[str, Assignment] = {}
        #: topic names to the number of members that subscribe to them
        self.named: Counter[str] = Counter()
        self.share_partitions = SharePartitions({}, {}, frozenset())
        #: the changes of share partitions that are computed a few slices per turn, in their order
        self.changes: deque[Callable[[ShareGroup], Any]] = deque()
        self.topic_names: dict[bytes, str] = {}
        #: when the last attempt to create state began
        self.initializing_ms = 0
        #: the state for which `has_unassigned` was computed, and its result
        self.checked_in: State | None = None
        self._is_unassigned = False
        #: the state in which all partitions of subscribed topics are initialized
        self.initialized_in: State | None = None

    @property
    def initializing(self) -> Assignment:
        return self.share_partitions.initializing

    @property
    def initialized(self) -> Assignment:
        return self.share_partitions.initialized

    @property
    def deleting(self) -> Set[bytes]:
        return self.share_partitions.deleting

    def names_of(self, partitions: SharePartitions, image: ClusterImage) -> dict[bytes, str]:
        """The names of topics: those that the group knows, and those of `partitions`."""
        ids = {*partitions.initializing, *partitions.initialized, *partitions.deleting}
        topics = [image.topics_by_id.get(TopicId(topic_id)) for topic_id in ids]
        return {**self.topic_names, **{topic.id: topic.name for topic in topics if topic is not None}}

    def hash_topics(self, image: ClusterImage) -> int:
        """A hash of the ids and partition counts of the subscribed topics; 0 without topics."""
        return hash_of([image.topics[name] for name in sorted(existing(image.topics, self.named))])

    def has_unassigned(self, image: ClusterImage) -> bool:
        """Returns true if a subscribed topic has initialized partitions that are not in the target."""
        state = self.share_partitions, self.epoch, self.assignment_epoch, image.offset
        if self.checked_in != state:
            self.checked_in, self._is_unassigned = state, self._has_unassigned(image)
        return self._is_unassigned

    def _has_unassigned(self, image: ClusterImage) -> bool:
        assigned: Assignment = {}
        for target in self.target.values():
            for topic_id, indexes in target.items():
                others = assigned.get(topic_id)
                assigned[topic_id] = indexes if others is None else others | indexes
        subscribed = {image.topics[name].id for name in existing(image.topics, self.named)}
        return any(
            topic_id in subscribed and assigned.get(topic_id, set()) != indexes
            for topic_id, indexes in self.initialized.items()
        )

    # -- the log

    def apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._count(member, -1)
                del self.members[member_id]
            return
        member = self.members.setdefault(member_id, ShareMember(member_id))
        member.rack_id = value.rack_id
        member.client_id, member.client_host = value.client_id, value.client_host
        topics = tuple(value.subscribed_topic_names)
        if topics != member.topics:
            self._count(member, -1)
            member.topics = topics
            self._count(member, 1)

    def _count(self, member: ShareMember, step: int) -> None:
        """Add (`step` 1) or remove (-1) a member's subscriptions from the counts."""
        count_names(self.named, member.topics, step)

    def apply_current(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        if value is None:
            if member_id in self.members:
                self.members[member_id].assigned = {}
            return
        member = self.members.setdefault(member_id, ShareMember(member_id))
        member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
        member.assigned = {t.topic_id: set(t.partitions) for t in value.assigned_partitions}

    def apply_state_partitions(self, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        value = value or ShareGroupStatePartitionMetadataValue()
        self.share_partitions = SharePartitions(
            {t.topic_id: set(t.partitions) for t in value.initializing_topics},
            {t.topic_id: set(t.partitions) for t in value.initialized_topics},
            {t.topic_id for t in value.deleting_topics},
        )
        partitions = (*value.initializing_topics, *value.initialized_topics)
        self.topic_names = {t.topic_id: t.topic_name for t in partitions}
        self.topic_names |= {t.topic_id: t.topic_name for t in value.deleting_topics}

    def state_key(self) -> ShareGroupStatePartitionMetadataKey:
        return ShareGroupStatePartitionMetadataKey(group_id=self.id)

    def record_keys(self) -> Iterator[Struct]:
        for member_id in self.members:
            yield ShareGroupCurrentMemberAssignmentKey(group_id=self.id, member_id=member_id)
        for member_id in self.target:
            yield ShareGroupTargetAssignmentMemberKey(group_id=self.id, member_id=member_id)
        yield ShareGroupTargetAssignmentMetadataKey(group_id=self.id)
        for member_id in self.members:
            yield ShareGroupMemberMetadataKey(group_id=self.id, member_id=member_id)
        yield self.state_key()
        yield ShareGroupMetadataKey(group_id=self.id)

    # -- the interface of a group

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int
    ) -> PartitionCheck | None:
        raise self._has_no_offsets()

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, epoch: int
    ) -> PartitionCheck | None:
        raise self._has_no_offsets()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        raise self._has_no_offsets()

    def check_offset_deletion(self) -> None:
        raise self._has_no_offsets()

    def _has_no_offsets(self) -> ApiError:
        return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.id} is not a consumer group.")

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.named

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        return None
