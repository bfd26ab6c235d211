"""The state of a consumer group (KIP-848): members, epochs, target assignment, and owners of partitions.

Only replayed records change the group, except for `image_offset`, the offset of the image with which the
subscribed topics were compared last, `partition_count`, the progress of the resolution of regular
expressions, and `refused_target`.

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
from penstock.groups.epoch_group import ReconciledGroup
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
from penstock.wire.schema import Struct

__all__ = ["ConsumerGroup", "RefusedTarget", "ResolvedRegex"]

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


class ConsumerGroup(ReconciledGroup[ConsumerMember]):
    """A group of the consumer protocol. See the module's docstring.

    Why more than 25 methods: the state that records change, and the interface of a group.
    """

    type: Final = "consumer"
    shown_protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, id: str) -> None:
        super().__init__(id, epoch=1, assignment_epoch=0)
        self.instances: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        #: topic id to partition to member id
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        #: topic names and regular expressions to the number of members that subscribe to them
        self.named: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()
        #: the partitions of the subscribed topics
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

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.named or any(topic in regex.topics for regex in self.regexes.values())

    def is_classic(self, member: ConsumerMember) -> bool:
        return member.classic is not None

    def assigned_since(
        self, member: ConsumerMember, topic: str, topic_id: bytes, partition: int
    ) -> int | None:
        return member.assignment_epoch(topic_id, partition)
