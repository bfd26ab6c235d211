"""The state of a consumer group (KIP-848): members, epochs, target assignment, and owners of partitions.

The group epoch rises with every change that calls for a new assignment. The assignment epoch is the group
epoch for which the target was computed. Members reach the target one by one. Only replayed records change
the group, except for `image_offset`, the offset of the image with which the subscribed topics were compared
last, `partition_count`, the progress of the resolution of regular expressions, and `refused_target`.

Invariants: `owners` has exactly the partitions in members' `assigned` and `revoking`. `instances` has
exactly the static members. `named` and `patterns` count the subscriptions of members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.groups.assignors import Assignment
from penstock.groups.consumer_member import ConsumerMember, PreparedAssignment
from penstock.groups.consumer_protocol import PROTOCOL_TYPE
from penstock.groups.group import PartitionCheck
from penstock.groups.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from penstock.groups.subscriptions import count_names, existing, hash_of, known_names
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.schema import Struct

__all__ = ["ConsumerGroup", "RefusedTarget", "ResolvedRegex"]

#: the first version of OffsetCommit for members of the new protocol
_COMMIT_FROM: Final = 9
#: the target of a member that has none
_NOTHING: Final[Assignment] = {}


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when it was last resolved."""

    topics: frozenset[str]
    #: of the image
    version: int


class RefusedTarget(NamedTuple):
    """A target that was not written, because members would get more than a record can have."""

    #: of the group
    epoch: int
    #: those members
    members: frozenset[str]
    reason: str


class ConsumerGroup:
    """A group of the consumer protocol. See the module's docstring.

    Why more than 25 methods: the state that records change, and the interface of a group.
    """

    type: Final = "consumer"
    shown_protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, id: str) -> None:
        self.id = id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 0
        #: when the target was computed; 0 if unknown
        self.assignment_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        #: topic id to partition to member id
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        #: topic names and regular expressions to the number of members that subscribe to them
        self.named: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()
        #: of the image whose topics `metadata_hash` was last compared with
        self.image_offset = -1
        #: the partitions of those topics
        self.partition_count = 0
        #: whether the sender of the last heartbeat has Describe on a topic; None before the first one
        self.may_describe: Callable[[str], bool] | None = None
        #: when the regular expressions were last resolved, and the offset of the image at that time; 0 and -1
        #: if they were not since the group was loaded
        self.resolved_ms = 0
        self.resolved_offset = -1
        #: a worker is resolving them
        self.is_resolving = False
        self.refused_target: RefusedTarget | None = None

    # -- members

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.id}."
            )
        return member

    def target_of(self, member: ConsumerMember) -> Assignment:
        return self.target.get(member.id, _NOTHING)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return self.members.get(self.instances.get(instance_id or "", ""))

    def supports_classic(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Returns true if a classic member with these protocols may join the group."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        offered = [
            {p.name for p in m.classic.supported_protocols} for m in self.members.values() if m.classic
        ]
        return any(all(name in names for names in offered) for name in protocols)

    # -- topics

    def known_topics_of(self, member: ConsumerMember, image: ClusterImage) -> set[str]:
        """The subscribed topics of a member that exist. An unresolved regular expression matches none."""
        names = set(known_names(member.topics, image.topics, self.named))
        resolved = self.regexes.get(member.regex or "")
        return names if resolved is None else names | (image.topics.keys() & resolved.topics)

    def existing_topics(self, image: ClusterImage) -> set[str]:
        """The subscribed topics of all members that exist."""
        names = existing(image.topics, self.named)
        return names.union(*(image.topics.keys() & r.topics for r in self.regexes.values()))

    def hash_topics(self, image: ClusterImage) -> int:
        """A hash of the ids and partition counts of the subscribed topics; 0 without topics."""
        topics = [image.topics[name] for name in sorted(self.existing_topics(image))]
        self.partition_count = sum([len(topic.partitions) for topic in topics])
        return hash_of(topics)

    def preferred_assignor(self) -> str | None:
        """The assignor that most members name; None if no member names one."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return max(votes, key=lambda name: votes[name]) if votes else None

    @property
    def has_refused_target(self) -> bool:
        """Returns true if there is no target for the group epoch, and none is being computed."""
        return self.refused_target is not None and self.refused_target.epoch == self.epoch

    # -- the log

    def apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            member = self.members.pop(member_id, None)
            if member is not None:
                self._release(member)
                self._count(member, -1)
                if self.instances.get(member.instance_id or "") == member_id:
                    del self.instances[member.instance_id or ""]
            return
        member = self.members.setdefault(member_id, ConsumerMember(member_id))
        is_changed = (member.topics, member.regex) != (
            tuple(value.subscribed_topic_names),
            value.subscribed_topic_regex,
        )
        if is_changed:
            self._count(member, -1)
        member.apply_metadata(value)
        if is_changed:
            self._count(member, 1)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members.setdefault(member_id, ConsumerMember(member_id))
        self._release(member)
        if value is None:
            member.assigned, member.revoking = {}, {}
            return
        member.apply_assignment(value)
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                if epochs:
                    self._own(topic_id, dict.fromkeys(epochs, member_id))

    def apply_prepared(self, member: ConsumerMember, prepared: PreparedAssignment) -> None:
        """As `apply_current` with the record of a prepared assignment, but most of the work is done."""
        for topic_id, indexes in prepared.released.items():
            self._disown(member, topic_id, indexes)
        for topic_id, owned in prepared.owned.items():
            self._own(topic_id, owned)
        member.apply_prepared(prepared)

    def _own(self, topic_id: bytes, owned: dict[int, str]) -> None:
        owners = self.owners.get(topic_id)
        if owners:
            owners.update(owned)
        else:
            self.owners[topic_id] = owned

    def _disown(self, member: ConsumerMember, topic_id: bytes, indexes: Collection[int]) -> None:
        owners = self.owners.get(topic_id, {})
        if [*owners] == [*indexes] and [*owners.values()].count(member.id) == len(owners):
            # As lists, which is fast: a member may have all partitions of thousands of topics.
            del self.owners[topic_id]
            return
        for index in indexes:
            if owners.get(index) == member.id:
                del owners[index]
        if not owners:
            self.owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember, step: int) -> None:
        """Add (`step` 1) or remove (-1) a member's subscriptions from the counts."""
        counted = [(self.named, member.topics), (self.patterns, (member.regex,) if member.regex else ())]
        for counts, names in counted:
            count_names(counts, names, step)

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                self._disown(member, topic_id, epochs)

    def record_keys(self) -> Iterator[Struct]:
        for member in self.members.values():
            yield member.assignment_key(self.id)
        for member_id in self.target:
            yield ConsumerGroupTargetAssignmentMemberKey(group_id=self.id, member_id=member_id)
        yield ConsumerGroupTargetAssignmentMetadataKey(group_id=self.id)
        for member in self.members.values():
            yield member.metadata_key(self.id)
        for regex in self.regexes:
            yield ConsumerGroupRegularExpressionKey(group_id=self.id, regular_expression=regex)
        yield ConsumerGroupMetadataKey(group_id=self.id)

    # -- the interface of a group

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(m.is_reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int
    ) -> PartitionCheck | None:
        if epoch < 0 and not self.members:
            return None
        member = self.member(member_id)
        if member.classic is None and version < _COMMIT_FROM:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        return _epoch_check(member, epoch)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, epoch: int
    ) -> PartitionCheck | None:
        if epoch < 0 and (not self.members or (not member_id and instance_id is None)):
            return None
        return _epoch_check(self.member(member_id), epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise ApiError(_stale(member))

    def check_offset_deletion(self) -> None:
        """Allowed for topics without subscribers. The caller checks each topic."""

    def check_deletion(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.named or any(topic in regex.topics for regex in self.regexes.values())

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        return commit_ms


def _stale(member: ConsumerMember) -> ErrorCode:
    """The error code of a stale member epoch, which depends on the member's protocol."""
    return ErrorCode.ILLEGAL_GENERATION if member.classic is not None else ErrorCode.STALE_MEMBER_EPOCH


def _epoch_check(member: ConsumerMember, epoch: int) -> PartitionCheck | None:
    """Check the epoch of a commit. Returns a check per partition if the epoch is an older one."""
    if epoch == member.epoch:
        return None
    stale = _stale(member)
    if epoch > member.epoch:
        raise ApiError(stale, f"Epoch {epoch} is newer than the member's epoch {member.epoch}.")

    def check(topic: str, topic_id: bytes, partition: int) -> None:
        """An older epoch is accepted for partitions that the member has owned since then."""
        assigned = member.assignment_epoch(topic_id, partition)
        if assigned is None or epoch < assigned:
            raise ApiError(stale, f"{topic}-{partition} is not assigned to the member in epoch {epoch}.")

    return check
