"""Classic members in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The generation of a classic member is its member epoch. JoinGroup moves the member one step towards its
target, SyncGroup returns its assignment, and Heartbeat returns REBALANCE_IN_PROGRESS while there is a
further step.
"""

from __future__ import annotations

from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from penstock.groups.consumer_requests import ConsumerRequests, check_instance
from penstock.groups.consumer_steps import CONSUMER_JOIN, CONSUMER_SYNC
from penstock.groups.epoch_group import MemberState
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.migration import named_assignment
from penstock.groups.records import ClassicMemberMetadata, ClassicProtocol, ConsumerGroupMemberMetadataValue
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["MixedRequests"]

_ID_REQUIRED_FROM: Final = 4


class MixedRequests:
    """The classic protocol for consumer groups."""

    __slots__ = ("_consumer", "_ledger", "_timers")

    def __init__(self, ledger: GroupLedger, consumer: ConsumerRequests) -> None:
        self._ledger = ledger
        self._timers = ledger.timers
        self._consumer = consumer

    # -- JoinGroup

    def join(self, group: ConsumerGroup, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        env = self._ledger.env
        if env.settings.migration_policy == "disabled":
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or env.new_uuid()
        if len(group.members) >= env.settings.consumer_size_max and member_id not in group.members:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        protocols = {p.name: p.metadata for p in request.protocols}
        if not group.supports_classic(request.protocol_type, protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            not request.member_id
            and request.group_instance_id is None
            and client.version >= _ID_REQUIRED_FROM
        ):
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        try:
            subscription = decode_subscription(request.protocols[0].metadata)
        except ProtocolError as e:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from e
        is_new = member_id not in group.members
        member = self._find(group, request, member_id)
        changed = self._update(group, member, request, subscription, client)
        steps = self._consumer.steps
        steps.refresh(group, changed)
        member = group.members[member.id]
        if is_new:
            # Its record is written even if it gets no target. Then its session expires.
            steps.keep_alive(group, member)
        steps.targets.assign(group, member.id)
        steps.reconcile(group, member, self._owned(subscription), changed)
        self._timers.cancel((CONSUMER_JOIN, group.id, member.id))
        steps.keep_alive(group, member)
        self._timers.schedule((CONSUMER_SYNC, group.id, member.id), member.rebalance_timeout_ms)
        return JoinGroupResponse(
            member_id=member.id,
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )

    def _find(self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        known = group.static_member(instance_id)
        if request.member_id:
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            check_instance(known, member_id)
            return known
        if known is None:
            return ConsumerMember(member_id)
        return self._consumer.replace(group, known, member_id)

    def _update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        request: JoinGroupRequest,
        subscription: Subscription,
        client: Client,
    ) -> bool:
        timeout_ms = request.rebalance_timeout_ms
        member_metadata = ConsumerGroupMemberMetadataValue(
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            client_id=client.id,
            client_host=client.host,
            subscribed_topic_names=sorted(set(subscription.topics)),
            rebalance_timeout_ms=request.session_timeout_ms if timeout_ms < 0 else timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=request.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=p.name, metadata=p.metadata) for p in request.protocols
                ],
            ),
        )
        is_new = member.id not in group.members
        changed = (
            is_new or tuple(member_metadata.subscribed_topic_names) != member.topics or bool(member.regex)
        )
        if is_new or member_metadata != member.metadata():
            self._ledger.write(member.metadata_key(group.id), member_metadata)
        return changed

    def _owned(self, subscription: Subscription) -> dict[bytes, list[int]]:
        topics = self._ledger.env.image.topics
        return {
            topics[owned.topic].id: owned.partitions
            for owned in subscription.owned_partitions
            if owned.topic in topics
        }

    # -- SyncGroup

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        assert member.classic is not None
        _check_generation(member, request.generation_id)
        chosen = member.classic.supported_protocols[0]
        if (request.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or (
            request.protocol_name or chosen.name
        ) != chosen.name:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._expect_join(group, member)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel((CONSUMER_SYNC, group.id, member.id))
        self._consumer.steps.keep_alive(group, member)
        assigned = {topic: set(epochs) for topic, epochs in member.assigned.items()}
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(
                named_assignment(assigned, self._ledger.env.image), subscription_version(chosen.metadata)
            ),
        )

    # -- Heartbeat

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        member = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._consumer.steps.keep_alive(group, member)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not _waits(group, member))
        ):
            self._expect_join(group, member)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        key = (CONSUMER_JOIN, group.id, member.id)
        if key not in self._timers:
            self._timers.schedule(key, member.rebalance_timeout_ms)

    # -- LeaveGroup

    def leaving(
        self, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> list[tuple[MemberIdentity, ConsumerMember | ErrorCode]]:
        """Each identity with its member, or with the error code if it has none."""
        return [(identity, _leaving(group, identity)) for identity in request.members]


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember | ErrorCode:
    if identity.group_instance_id is None:
        return group.members.get(identity.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.static_member(identity.group_instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    # An administrator removes a static member without knowing its id.
    return ErrorCode.FENCED_INSTANCE_ID if identity.member_id not in ("", member.id) else member


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    else:
        static = group.static_member(instance_id)
        if static is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_instance(static, member_id)
        member = static
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if member.epoch != generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Returns true if another member still owns a partition of the member's target."""
    return any(
        index not in member.assigned.get(topic, ()) and index in group.owners.get(topic, ())
        for topic, indexes in group.target.get(member.id, {}).items()
        for index in indexes
    )
