"""The state of a share group (KIP-932): members, epochs, target assignment, and its share partitions.

Several members may have the same partition. A member gets its target at once: there is nothing to revoke.
Only replayed records change the group, except for `image_offset`, the offset of the image with which the
subscribed topics were compared last, and `initializing_ms`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.groups.assignors import Assignment
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
    ShareTopicPartitionsInfo,
)
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.schema import Struct

__all__ = ["PROTOCOL_TYPE", "ShareGroup", "ShareMember"]

PROTOCOL_TYPE: Final = "share"


class ShareMember:
    """A member of a share group."""

    __slots__ = ("assigned", "client_host", "client_id", "epoch", "id", "previous_epoch", "rack_id", "topics")

    def __init__(self, id: str) -> None:
        self.id = id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topics: tuple[str, ...] = ()
        self.epoch = 0
        self.previous_epoch = -1
        self.assigned: Assignment = {}

    def metadata(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
        )


class ShareGroup:
    """A share group. See the module's docstring."""

    type: Final = "share"
    shown_protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, id: str) -> None:
        self.id = id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        #: when the target was computed; 0 if unknown
        self.assignment_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Assignment] = {}
        #: topic names to the number of members that subscribe to them
        self.named: Counter[str] = Counter()
        #: topics to the partitions whose state is being created, and whose state exists
        self.initializing: Assignment = {}
        self.initialized: Assignment = {}
        #: topics whose state is being deleted
        self.deleting: set[bytes] = set()
        self.topic_names: dict[bytes, str] = {}
        #: when the last attempt to create state began
        self.initializing_ms = 0
        #: of the image whose topics `metadata_hash` was last compared with
        self.image_offset = -1

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}."
            )
        return member

    def hash_topics(self, image: ClusterImage) -> int:
        """A hash of the ids and partition counts of the subscribed topics; 0 without topics."""
        topics = [image.topics[name] for name in sorted(self.named) if name in image.topics]
        if not topics:
            return 0
        digest = hashlib.blake2b(digest_size=8)
        for topic in topics:
            digest.update(topic.id + len(topic.partitions).to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def has_unassigned(self, image: ClusterImage) -> bool:
        """Returns true if a subscribed topic has initialized partitions that are not in the target."""
        assigned: dict[bytes, set[int]] = {}
        for target in self.target.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        subscribed = {image.topics[name].id for name in self.named if name in image.topics}
        return any(
            topic_id in subscribed and assigned.get(topic_id, set()) != indexes
            for topic_id, indexes in self.initialized.items()
        )

    # -- the log

    def apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._count(member, -1)
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.setdefault(member_id, ShareMember(member_id))
        member.rack_id = value.rack_id
        member.client_id, member.client_host = value.client_id, value.client_host
        member.topics = tuple(value.subscribed_topic_names)
        self._count(member, 1)

    def _count(self, member: ShareMember, step: int) -> None:
        """Add (`step` 1) or remove (-1) a member's subscriptions from the counts."""
        for name in member.topics:
            self.named[name] += step
            if not self.named[name]:
                del self.named[name]

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
        self.initializing = {t.topic_id: set(t.partitions) for t in value.initializing_topics}
        self.initialized = {t.topic_id: set(t.partitions) for t in value.initialized_topics}
        self.deleting = {t.topic_id for t in value.deleting_topics}
        partitions = (*value.initializing_topics, *value.initialized_topics)
        self.topic_names = {t.topic_id: t.topic_name for t in partitions}
        self.topic_names |= {t.topic_id: t.topic_name for t in value.deleting_topics}

    def partitions_info(self, partitions: Assignment) -> list[ShareTopicPartitionsInfo]:
        return [
            ShareTopicPartitionsInfo(
                topic_id=topic_id, topic_name=self.topic_names.get(topic_id, ""), partitions=sorted(indexes)
            )
            for topic_id, indexes in partitions.items()
            if indexes
        ]

    def record_keys(self) -> Iterator[Struct]:
        for member_id in self.members:
            yield ShareGroupCurrentMemberAssignmentKey(group_id=self.id, member_id=member_id)
        for member_id in self.target:
            yield ShareGroupTargetAssignmentMemberKey(group_id=self.id, member_id=member_id)
        yield ShareGroupTargetAssignmentMetadataKey(group_id=self.id)
        for member_id in self.members:
            yield ShareGroupMemberMetadataKey(group_id=self.id, member_id=member_id)
        yield ShareGroupStatePartitionMetadataKey(group_id=self.id)
        yield ShareGroupMetadataKey(group_id=self.id)

    # -- the interface of a group

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

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

    def check_deletion(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.named

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        return None
