"""Decisions on ConsumerGroupHeartbeat: joining, staying, leaving (KIP-848).

One request does it all: its member epoch says what it means. 0 joins, -1 leaves, -2 is a static member that
leaves for a while, anything else is a heartbeat of a member in that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    LEFT_FOR_A_WHILE,
    ConsumerMember,
    current_assignment,
)
from penstock.groups.consumer_steps import ConsumerSteps
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.records import ConsumerGroupMemberMetadataValue
from penstock.groups.targets import target_record
from penstock.groups.topic_regex import matching_topics
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
#: the first version whose members bring their own ids
_OWN_ID_FROM: Final = 1


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raise the ApiError that a request deserves whatever the group is like."""
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
    elif epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEFT_FOR_A_WHILE:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


class Change(Enum):
    """How a heartbeat changes its member's subscription."""

    NONE = 0
    #: the group needs no new target assignment for it, or not yet
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
        """`group` may be new: then it comes into being with the member's record."""
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
        self.steps.refresh(group, change is Change.NEEDS_TARGET)
        self.steps.targets.assign(group)
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
        if known.classic is None and known.epoch != LEFT_FOR_A_WHILE:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {known.id} member.",
            )
        return self.replace(group, known, member_id)

    def replace(self, group: ConsumerGroup, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """A static member is back under another id: its assignment goes on as the new one's."""
        wants, target = old.wants(), group.target.get(old.id, {})
        has = current_assignment(0, 0, old.state, old.assigned, old.revoking)
        self.steps.erase(group, old)
        member = ConsumerMember(new_id)
        self._ledger.write(member.metadata_key(group.id), wants)
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
        """Write the member's metadata record if it differs; returns what became of its subscription."""
        is_new = member.id not in group.members
        if not is_new and _says_nothing_new(member, request, client):
            return Change.NONE
        wants = member.wants()
        wants.client_id, wants.client_host = client.id, client.host
        wants.classic_member_metadata = None
        if request.instance_id is not None:
            wants.instance_id = request.instance_id
        if request.rack_id is not None:
            wants.rack_id = request.rack_id
        if request.rebalance_timeout_ms != -1:
            wants.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            wants.server_assignor = request.server_assignor
        if request.subscribed_topic_names is not None:
            wants.subscribed_topic_names = sorted(set(request.subscribed_topic_names))
        if request.subscribed_topic_regex is not None:
            wants.subscribed_topic_regex = request.subscribed_topic_regex
            if request.subscribed_topic_regex and request.subscribed_topic_regex not in group.regexes:
                # What is no regular expression must not get into the log.
                matching_topics(request.subscribed_topic_regex, ())
        change = _change(group, member, wants)
        if is_new or wants != member.wants():
            self._ledger.write(member.metadata_key(group.id), wants)
        return change

    # -- leaving

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerMember | None, ConsumerGroupHeartbeatResponse]:
        """The answer to who leaves, and the member that is to be fenced, unless it means to be back."""
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            static = group.static_member(request.instance_id)
            if static is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
            check_instance(static, request.member_id)
            member = static
        response = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)
        if request.member_epoch != LEFT_FOR_A_WHILE:
            return member, response
        kept = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
        self._ledger.write(
            member.assignment_key(group.id),
            current_assignment(LEFT_FOR_A_WHILE, member.previous_epoch, member.state, kept, {}),
        )
        return None, response

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members: the others get what they had."""
        for member in members:
            self.steps.erase(group, member)
        self.steps.refresh(group, changed=True)


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """The epoch must be the member's; the one before will do where only our answer can have been lost."""
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
    """Whether the member says what it has, and that is nothing but what it was assigned."""
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


def _says_nothing_new(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> bool:
    """Whether it is a plain heartbeat, as nearly all are."""
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


def _change(group: ConsumerGroup, member: ConsumerMember, wants: ConsumerGroupMemberMetadataValue) -> Change:
    """Compares a member's subscription with the one that it is about to have, as Kafka does.

    A regular expression without matches yet calls for no target: its matches will.
    """
    if tuple(wants.subscribed_topic_names) != member.topics:
        return Change.NEEDS_TARGET
    old, new = member.regex or "", wants.subscribed_topic_regex or ""
    if old == new:
        return Change.NONE
    return Change.NEEDS_TARGET if not new or new in group.regexes else Change.SUBSCRIPTION


def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {t.topic_id: t.partitions for t in request.topic_partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request says everything, as a member does that wants to be told everything."""
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
