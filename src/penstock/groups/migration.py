"""Online migration: a classic group becomes a consumer group and back, with its members.

A classic group is upgraded when a member joins it with the new protocol. Its classic members stay, keep
their partitions, and send JoinGroup, SyncGroup and Heartbeat to a consumer group from then on (`mixed`).
When only classic members are left, the group is downgraded to a classic group, which starts a rebalance.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.groups.assignors import Assignment
from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.classic_rebalance import JOIN, SYNC, Rebalance
from penstock.groups.classic_rebalance import SESSION as CLASSIC_SESSION
from penstock.groups.classic_records import group_record
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember, current_assignment
from penstock.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from penstock.groups.consumer_steps import ConsumerSteps
from penstock.groups.epoch_group import MemberState
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from penstock.groups.targets import target_record
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.model.ids import TopicId
from penstock.wire.apis.join_group import JoinGroupResponse
from penstock.wire.apis.sync_group import SyncGroupResponse

__all__ = ["Migration", "erase_classic", "named_assignment"]

_UPGRADES: Final = ("bidirectional", "upgrade")
_DOWNGRADES: Final = ("bidirectional", "downgrade")


class Migration:
    """Converts groups of one shard from one protocol to the other."""

    __slots__ = ("_ledger", "_rebalance", "_steps")

    def __init__(self, ledger: GroupLedger, steps: ConsumerSteps, rebalance: Rebalance) -> None:
        self._ledger = ledger
        self._steps = steps
        self._rebalance = rebalance

    # -- to the new protocol

    def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """Convert a classic group to a consumer group; GROUP_ID_NOT_FOUND if that is not possible."""
        if group.is_empty:
            erase_classic(self._ledger, group)
            return ConsumerGroup(group.id)
        self._check_upgrade(group)
        try:
            members = [(m, *self._decoded(group, m)) for m in group.members.values()]
        except ProtocolError as e:
            raise _not_upgradable(group, "the embedded consumer protocol is malformed") from e
        self._fail_waiting(group)
        erase_classic(self._ledger, group)
        write = self._ledger.write
        for member, member_metadata, target in members:
            consumer = ConsumerMember(member.id)
            write(consumer.metadata_key(group.id), member_metadata)
            write(*target_record(group.id, member.id, target))
            has = {
                topic: dict.fromkeys(sorted(indexes), group.generation) for topic, indexes in target.items()
            }
            write(
                consumer.assignment_key(group.id),
                current_assignment(group.generation, group.generation, MemberState.STABLE, has, {}),
            )
        upgraded = self._ledger.groups[group.id]
        assert isinstance(upgraded, ConsumerGroup)
        write(
            ConsumerGroupMetadataKey(group_id=group.id),
            ConsumerGroupMetadataValue(
                epoch=group.generation, metadata_hash=upgraded.hash_topics(self._ledger.env.image)
            ),
        )
        write(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.generation),
        )
        for converted in upgraded.members.values():
            self._steps.keep_alive(upgraded, converted)
        return upgraded

    def _check_upgrade(self, group: ClassicGroup) -> None:
        settings = self._ledger.env.settings
        if settings.migration_policy not in _UPGRADES:
            raise _not_upgradable(group, "online upgrade is disabled")
        if group.protocol_type != PROTOCOL_TYPE:
            raise _not_upgradable(group, "the group does not use the consumer embedded protocol")
        if len(group.members) > settings.consumer_size_max:
            raise _not_upgradable(group, "the group size exceeds the consumer group maximum size")

    def _decoded(
        self, group: ClassicGroup, member: ClassicMember
    ) -> tuple[ConsumerGroupMemberMetadataValue, Assignment]:
        """The metadata and assignment of a classic member, decoded from its opaque bytes."""
        protocol = group.protocol or next(iter(member.protocols))
        subscription = decode_subscription(member.protocols[protocol])
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _not_upgradable(group, "a custom assignor is in use, and its user data would be lost")
        topics = self._ledger.env.image.topics
        target: Assignment = {}
        for assigned in assignment.assigned_partitions:
            if assigned.topic in topics and assigned.partitions:
                target[topics[assigned.topic].id] = set(assigned.partitions)
        member_metadata = ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(set(subscription.topics)),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=member.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata)
                    for name, metadata in member.protocols.items()
                ],
            ),
        )
        return member_metadata, target

    def _fail_waiting(self, group: ClassicGroup) -> None:
        """Fail the requests that wait for the classic rebalance. Their members join again."""
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            reply_to = group.end_join(member)
            if reply_to is not None:
                self._ledger.reply(reply_to, JoinGroupResponse(error_code=code, member_id=member.id))
            if member.sync is not None:
                self._ledger.reply(member.sync, SyncGroupResponse(error_code=code))
                member.sync = None

    # -- to the classic protocol

    def can_downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> bool:
        """Returns true if only classic members are left without `leaving`."""
        settings = self._ledger.env.settings
        gone = {member.id for member in leaving}
        left = len(group.members) - len(gone)
        return (
            0 < left <= settings.classic_size_max
            and settings.migration_policy in _DOWNGRADES
            and not any(m.classic is None and m.id not in gone for m in group.members.values())
        )

    def downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> ClassicGroup:
        """Convert to a stable classic group of the members that stay, with the target as assignment."""
        gone = {member.id for member in leaving}
        classic = ClassicGroup(group.id, self._ledger.now_ms)
        classic.generation = group.epoch
        for member in group.members.values():
            if member.id not in gone:
                classic.add(_classic_member(member), PROTOCOL_TYPE, None)
        classic.protocol = classic.elected_protocol()
        for restored in classic.members.values():
            restored.assignment = encode_assignment(
                named_assignment(group.target.get(restored.id, {}), self._ledger.env.image),
                subscription_version(restored.protocols[classic.protocol]),
            )
        classic.state = ClassicState.STABLE
        classic.topics = classic.topics_read()
        self.erase(group)
        self._ledger.log(group_record(classic))
        self._ledger.groups[group.id] = classic
        for restored in classic.members.values():
            self._rebalance.keep_alive(classic, restored)
        return classic

    def erase(self, group: ConsumerGroup) -> None:
        """Write tombstones for all records of a consumer group."""
        for member in list(group.members.values()):
            self._steps.erase(group, member)
        for key in list(group.record_keys()):
            self._ledger.write(key, None)


def erase_classic(ledger: GroupLedger, group: ClassicGroup) -> None:
    """Delete a classic group, which a group of another type replaces."""
    ledger.timers.cancel((JOIN, group.id))
    ledger.timers.cancel((SYNC, group.id))
    for member_id in (*group.members, *group.pending_joins):
        ledger.timers.cancel((CLASSIC_SESSION, group.id, member_id))
    for key in group.record_keys():
        ledger.write(key, None)


def named_assignment(target: Assignment, image: ClusterImage) -> dict[str, set[int]]:
    """An assignment by topic name, for the classic protocol."""
    return {
        image.topics_by_id[TopicId(topic_id)].name: indexes
        for topic_id, indexes in target.items()
        if topic_id in image.topics_by_id
    }


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols={p.name: p.metadata for p in member.classic.supported_protocols},
    )


def _not_upgradable(group: ClassicGroup, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.id} to consumer group because {reason}.",
    )
