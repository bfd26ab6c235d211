"""Decisions on ConsumerGroupHeartbeat: joining, staying, leaving (KIP-848).

The member epoch of the request decides: 0 joins, -1 leaves, -2 is a static member that leaves and will
rejoin. Any other epoch is a heartbeat of a member in that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
    current_assignment,
)
from penstock.groups.consumer_steps import ConsumerSteps
from penstock.groups.large_assignments import has_many_partitions
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.records import ConsumerGroupMemberMetadataValue
from penstock.groups.subscriptions import check_names
from penstock.groups.targets import target_record
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.wire.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

__all__ = ["JOINING", "ConsumerRequests", "check_request"]

JOINING: Final = 0
LEAVING: Final = -1
#: the first version in which members choose their own ids
_OWN_ID_FROM: Final = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raise the ApiError of a request that is invalid for any group."""
    epoch = request.member_epoch
    if not request.member_id.strip() and (version >= _OWN_ID_FROM or epoch > 0 or epoch == LEAVING):
        raise InvalidRequest("MemberId can't be empty.")
    named = {"GroupId": request.group_id, "InstanceId": request.instance_id, "RackId": request.rack_id}
    for field, name in named.items():
        if name is not None and not name.strip():
            raise InvalidRequest(f"{field} can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    check_names(request.subscribed_topic_names)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


class Change(Enum):
    """How a heartbeat changes its member's subscription."""

    NONE = 0
    #: changed, but without a need for a new target assignment yet
    SUBSCRIPTION = 1
    NEEDS_TARGET = 2


class ConsumerRequests:
    """The new protocol of one shard's consumer groups."""

    __slots__ = ("_ledger", "steps")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.steps: Final = ConsumerSteps(ledger)

    # -- joining and staying

    def heartbeat(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a member that joins or stays. The member's record creates a new group."""
        settings = self._ledger.env.settings_of(group.id)
        if len(group.members) >= settings.consumer_size_max and request.member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum of {settings.consumer_size_max} members.",
            )
        member = self._find_member(group, request)
        before = member.assigned
        change = self._update(group, member, request, client)
        group = self._written(group)
        member = group.members[member.id]
        group.may_describe = client.may_describe
        self.steps.refresh(group, change is Change.NEEDS_TARGET)
        if request.member_epoch == JOINING:
            # Its record is written even if it gets no target. Then its session expires.
            self.steps.keep_alive(group, member)
        self.steps.targets.assign(group, member.id)
        self.steps.reconcile(group, member, _owned(request), change is not Change.NONE)
        self.steps.keep_alive(group, member)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.steps.heartbeat_ms(group, member),
        )
        if request.member_epoch == JOINING or _is_full(request) or before != member.assigned:
            response.assignment = _assignment(member)
        return response

    def _written(self, group: ConsumerGroup) -> ConsumerGroup:
        written = self._ledger.groups[group.id]
        assert isinstance(written, ConsumerGroup)
        return written

    def _find_member(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        member_id = request.member_id or self._ledger.env.new_uuid()
        joins = request.member_epoch == JOINING
        if request.instance_id is not None:
            return self._find_static(group, request, member_id)
        member = group.members.get(member_id)
        if member is None:
            if not joins:
                return group.member(member_id)
            return ConsumerMember(member_id)
        _check_epoch(member, request)
        return member

    def _find_static(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> ConsumerMember:
        instance_id = request.instance_id
        known = group.static_member(instance_id)
        if request.member_epoch != JOINING:
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            check_instance(known, member_id)
            _check_epoch(known, request)
            return known
        if known is None:
            return ConsumerMember(member_id)
        if known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {known.id} member.",
            )
        return self.replace(group, known, member_id)

    def replace(self, group: ConsumerGroup, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """Move the assignment of a static member that has rejoined to its new id.

        One with many partitions joins as a new member instead: the assignors give it the partitions that its
        former id had, in slices.
        """
        if has_many_partitions(old, group.target_of(old)):
            self.steps.erase(group, old)
            return ConsumerMember(new_id)
        metadata, target = old.metadata(), group.target.get(old.id, {})
        has = current_assignment(0, 0, old.state, old.assigned, old.revoking)
        self.steps.erase(group, old)
        member = ConsumerMember(new_id)
        self._ledger.write(member.metadata_key(group.id), metadata)
        self._ledger.write(*target_record(group.id, new_id, target))
        self._ledger.write(member.assignment_key(group.id), has)
        return group.members[new_id]

    def _update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
    ) -> Change:
        """Write the member's metadata record if it differs. Returns the change of its subscription."""
        is_new = member.id not in group.members
        if not is_new and _is_plain_heartbeat(member, request, client):
            return Change.NONE
        metadata = member.metadata()
        metadata.client_id, metadata.client_host = client.id, client.host
        metadata.classic_member_metadata = None
        if request.instance_id is not None:
            metadata.instance_id = request.instance_id
        if request.rack_id is not None:
            metadata.rack_id = request.rack_id
        if request.rebalance_timeout_ms != -1:
            metadata.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            metadata.server_assignor = request.server_assignor
        if request.subscribed_topic_names is not None:
            # Sorted already if there are many.
            metadata.subscribed_topic_names = sorted(dict.fromkeys(request.subscribed_topic_names))
        if request.subscribed_topic_regex is not None:
            metadata.subscribed_topic_regex = request.subscribed_topic_regex
            if client.regex_error is not None:
                raise ApiError(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{request.subscribed_topic_regex}` is not a valid regular "
                    f"expression: {client.regex_error.message}.",
                )
        change = _change(group, member, metadata)
        if is_new or metadata != member.metadata():
            self._ledger.write(member.metadata_key(group.id), metadata)
        return change

    # -- leaving

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerMember | None, ConsumerGroupHeartbeatResponse]:
        """The member to fence, None for a static member that will rejoin, and the response."""
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            static = group.static_member(request.instance_id)
            if static is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
            check_instance(static, request.member_id)
            member = static
        response = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return member, response
        # The record lists the partitions of the member only if they are few: its target assignment keeps
        # them.
        kept: Partitions = {}
        if not has_many_partitions(member, {}):
            kept = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
        self._ledger.write(
            member.assignment_key(group.id),
            current_assignment(STATIC_LEAVE_EPOCH, member.previous_epoch, member.state, kept, {}),
        )
        return None, response

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members. The next target assigns their partitions to others."""
        for member in members:
            self.steps.erase(group, member)
        self.steps.refresh(group, changed=True)


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Check the member epoch. The previous epoch is accepted if only the last response can have been lost."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _owns_at_most(member, _owned(request)):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_at_most(member: ConsumerMember, owned: dict[bytes, list[int]] | None) -> bool:
    """Returns true if the member reports its partitions, and all of them are assigned to it."""
    return owned is not None and all(
        index in member.assigned.get(topic, ()) for topic, indexes in owned.items() for index in indexes
    )


def check_instance(member: ConsumerMember, member_id: str) -> None:
    if member.id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} was fenced by member "
            f"{member.id}.",
        )


def _is_plain_heartbeat(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client
) -> bool:
    """Returns true if the request changes nothing, as nearly all do."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id == member.instance_id
        and client.id == member.client_id
        and client.host == member.client_host
        and member.classic is None
    )


def _change(
    group: ConsumerGroup, member: ConsumerMember, metadata: ConsumerGroupMemberMetadataValue
) -> Change:
    """Compare a member's subscription with its new one, as Kafka does.

    A regular expression that is not resolved yet needs no new target; its resolution does.
    """
    if tuple(metadata.subscribed_topic_names) != member.topics:
        return Change.NEEDS_TARGET
    old, new = member.regex or "", metadata.subscribed_topic_regex or ""
    if old == new:
        return Change.NONE
    return Change.NEEDS_TARGET if not new or new in group.regexes else Change.SUBSCRIPTION


def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {t.topic_id: t.partitions for t in request.topic_partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns true for a full request. Its response carries the full assignment."""
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(member: ConsumerMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )
