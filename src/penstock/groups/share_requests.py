"""Decisions on ShareGroupHeartbeat: joining, staying, leaving (KIP-932).

The member epoch of the request decides: 0 joins, -1 leaves. Any other epoch is a heartbeat of a member in
that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.groups.assignors import Assignment
from penstock.groups.large_assignments import TOPICS_AT_ONCE_MAX
from penstock.groups.large_share_changes import LargeShareChanges, is_large
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.share_group import ShareGroup, ShareMember
from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
)
from penstock.groups.share_state import ShareStatePartitions
from penstock.groups.share_targets import ShareTargets, share_partitions
from penstock.groups.subscriptions import check_names, known_names
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.wire.apis import share_group_heartbeat as wire
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.wire.slicing import exhausted

__all__ = ["SHARE_SESSION", "ShareRequests", "check_share_request"]

JOINING: Final = 0
LEAVING: Final = -1
#: of a member id, as in share sessions
MEMBER_ID_LENGTH_MAX: Final = 36
#: the kind of the timer of a member's session
SHARE_SESSION: Final = "share-session"
#: the name of the only assignor
SIMPLE: Final = "simple"


def check_share_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise the ApiError of a request that is invalid for any group."""
    named = {"MemberId": request.member_id, "GroupId": request.group_id, "RackId": request.rack_id}
    for field, name in named.items():
        if name is not None and not name.strip():
            raise InvalidRequest(f"{field} can't be empty.")
    if len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(f"MemberId is longer than {MEMBER_ID_LENGTH_MAX} characters.")
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    check_names(request.subscribed_topic_names)
    if request.member_epoch < LEAVING:
        raise InvalidRequest("MemberEpoch is invalid.")


class ShareRequests:
    """The membership of one shard's share groups."""

    __slots__ = ("_ledger", "large", "state", "targets")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.large: Final = LargeShareChanges(ledger)
        self.state: Final = ShareStatePartitions(ledger, self.large)
        self.targets: Final = ShareTargets(ledger)

    # -- groups

    def find(self, group_id: str, kind: str = "Share group") -> ShareGroup:
        """The group; GROUP_ID_NOT_FOUND if there is none, or if it is not a share group.

        `kind` is Kafka's name for a group in the error message, which depends on the request.
        """
        group = self._ledger.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group

    def get(self, group_id: str) -> ShareGroup | None:
        group = self._ledger.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def find_or_new(self, group_id: str) -> ShareGroup:
        return self.find(group_id) if group_id in self._ledger.groups else ShareGroup(group_id)

    # -- members

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client) -> ShareGroupHeartbeatResponse:
        if request.member_epoch == LEAVING:
            group = self.find(request.group_id)
            self.fence(group, [group.member(request.member_id)])
            return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING)
        joins = request.member_epoch == JOINING
        group = self.find_or_new(request.group_id) if joins else self.find(request.group_id)
        member = self._find_member(group, request)
        before = member.assigned
        changed = self._update(group, member, request, client)
        group = self.find(request.group_id)
        member = group.members[member.id]
        if joins:
            # Its record is written even if the request fails. Then its session expires.
            self.keep_alive(group, member)
        checked_in = group.checked_in
        self._refresh(group, changed)
        self.targets.assign(group)
        self._reconcile(group, member)
        has_looked = changed or checked_in is not group.checked_in
        if not has_looked or len(group.named) <= TOPICS_AT_ONCE_MAX:
            # Else the next heartbeat does it: each look at thousands of topics takes milliseconds.
            self.state.initialize_subscribed(group)
        self.keep_alive(group, member)
        response = ShareGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._heartbeat_ms(group, member),
        )
        if joins or request.subscribed_topic_names is not None or before != member.assigned:
            response.assignment = _assignment(member.assigned)
        return response

    def _find_member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
        size_max = self._ledger.env.settings.share_size_max
        member = group.members.get(request.member_id)
        if member is None and len(group.members) >= size_max:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        if request.member_epoch == JOINING:
            return member or ShareMember(request.member_id)
        member = group.member(request.member_id)
        if request.member_epoch not in (member.epoch, member.previous_epoch):
            raise _fenced(member, request.member_epoch)
        return member

    def _update(
        self, group: ShareGroup, member: ShareMember, request: ShareGroupHeartbeatRequest, client: Client
    ) -> bool:
        """Write the member's metadata if it differs. Returns true if its subscription has changed."""
        metadata = member.metadata()
        metadata.client_id, metadata.client_host = client.id, client.host
        if request.rack_id is not None:
            metadata.rack_id = request.rack_id
        if request.subscribed_topic_names is not None:
            # Sorted already if there are many.
            metadata.subscribed_topic_names = sorted(dict.fromkeys(request.subscribed_topic_names))
        if member.id in group.members and metadata == member.metadata():
            return False
        changed = tuple(metadata.subscribed_topic_names) != member.topics
        self._ledger.write(ShareGroupMemberMetadataKey(group_id=group.id, member_id=member.id), metadata)
        return changed

    def _heartbeat_ms(self, group: ShareGroup, member: ShareMember) -> int:
        """A member that waits for share partitions to be created, or for a new target, reports sooner."""
        settings = self._ledger.env.settings_of(group.id)
        waits = (
            group.initializing
            or group.assignment_epoch < group.epoch
            or self.large.is_changing(group)
            or (group.initialized_in is None and len(group.named) > TOPICS_AT_ONCE_MAX)
            or self.large.is_preparing(group, member)
        )
        if not waits:
            return settings.share_heartbeat_ms
        return min(settings.share_heartbeat_ms, settings.consumer_waiting_heartbeat_ms + len(group.members))

    def keep_alive(self, group: ShareGroup, member: ShareMember) -> None:
        timeout_ms = self._ledger.env.settings_of(group.id).share_session_timeout_ms
        self._ledger.timers.schedule((SHARE_SESSION, group.id, member.id), timeout_ms)

    def session_expired(self, group: ShareGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self.fence(group, [member])

    def fence(self, group: ShareGroup, members: Sequence[ShareMember]) -> None:
        """Remove members. The next target gives their partitions to others."""
        for member in members:
            key = {"group_id": group.id, "member_id": member.id}
            self._ledger.write(ShareGroupCurrentMemberAssignmentKey(**key), None)
            self._ledger.write(ShareGroupTargetAssignmentMemberKey(**key), None)
            self._ledger.write(ShareGroupMemberMetadataKey(**key), None)
            self._ledger.timers.cancel((SHARE_SESSION, group.id, member.id))
        self._refresh(group, changed=True)

    # -- epochs and targets

    def _refresh(self, group: ShareGroup, changed: bool) -> None:
        """Raise the group epoch if subscriptions have `changed`, or topics, or initialized partitions."""
        image = self._ledger.env.image
        if not changed and group.assignment_epoch >= group.epoch:
            changed = group.has_unassigned(image)
        if not changed and group.image_offset == image.offset:
            return
        group.image_offset = image.offset
        topics_hash = group.hash_topics(image)
        if changed or topics_hash != group.metadata_hash:
            self._ledger.write(
                ShareGroupMetadataKey(group_id=group.id),
                ShareGroupMetadataValue(epoch=group.epoch + 1, metadata_hash=topics_hash),
            )

    def _reconcile(self, group: ShareGroup, member: ShareMember) -> None:
        """Give the member its target, without topics that it no longer subscribes to."""
        if self.large.write_assignment(group, member):
            return
        image, target = self._ledger.env.image, group.target.get(member.id, {})
        basis = target, member.topics, member.assigned, member.epoch, group.assignment_epoch, image.offset
        if member.settled_in == basis:
            return
        topics = image.topics
        subscribed = {topics[name].id for name in known_names(member.topics, topics, group.named)}
        wanted = {topic_id: indexes for topic_id, indexes in target.items() if topic_id in subscribed}
        if member.epoch == group.assignment_epoch and member.assigned == wanted:
            member.settled_in = basis
            return
        if is_large(wanted):
            self.large.prepare_assignment(group, member, wanted)
            return
        self._ledger.write(
            ShareGroupCurrentMemberAssignmentKey(group_id=group.id, member_id=member.id),
            ShareGroupCurrentMemberAssignmentValue(
                member_epoch=group.assignment_epoch,
                previous_member_epoch=member.epoch,
                assigned_partitions=exhausted(share_partitions(wanted)),
            ),
        )


def _fenced(member: ShareMember, epoch: int) -> ApiError:
    relation = "greater" if epoch > member.epoch else "smaller"
    return ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _assignment(assignment: Assignment) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=t, partitions=sorted(p)) for t, p in assignment.items()
        ]
    )
