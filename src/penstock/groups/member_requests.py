"""Requests of the members of classic groups and of consumer groups, which may become each other.

A method per request. It finds the group, converts it if the member has the other protocol, and leaves the
rest to the requests of that protocol. It returns the response, or raises the ApiError that becomes the
response, or returns None and replies to `reply_to` in this or a later turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.coordination.outbox import ReplyTo
from penstock.coordination.timers import TimerKey
from penstock.groups.classic import ClassicGroup
from penstock.groups.classic_rebalance import JOIN, SYNC
from penstock.groups.classic_rebalance import SESSION as CLASSIC_SESSION
from penstock.groups.classic_records import group_record
from penstock.groups.classic_requests import ClassicRequests
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.consumer_requests import JOINING, ConsumerRequests, check_request
from penstock.groups.consumer_steps import CONSUMER_TIMERS, PATTERNS
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.migration import Migration
from penstock.groups.mixed import MixedRequests
from penstock.groups.share_group import ShareGroup
from penstock.groups.streams.group import StreamsGroup
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["MemberRequests"]


class MemberRequests:
    """The members of one shard's classic groups and consumer groups."""

    def __init__(self, ledger: GroupLedger, erase_streams: Callable[[StreamsGroup], None]) -> None:
        """`erase_streams` deletes an empty streams group, which a classic group replaces."""
        self._ledger = ledger
        self._erase_streams = erase_streams
        self._classic = ClassicRequests(ledger)
        self.consumer: Final = ConsumerRequests(ledger)
        self._mixed = MixedRequests(ledger, self.consumer)
        self._migration = Migration(ledger, self.consumer.steps, self._classic.rebalance)

    # -- sessions

    def resume(self, group: ClassicGroup | ConsumerGroup) -> None:
        """Start the sessions of all members; a classic group that is too large for the configs shrinks."""
        if isinstance(group, ConsumerGroup):
            for consumer in group.members.values():
                self.consumer.steps.resume(group, consumer)
            return
        for member in group.members.values():
            self._classic.rebalance.keep_alive(group, member)
        if len(group.members) > self._ledger.env.settings.classic_size_max:
            self._classic.rebalance.prepare(group)

    def timer_expired(self, group: ClassicGroup | ConsumerGroup, key: TimerKey) -> None:
        if isinstance(group, ClassicGroup):
            if key[0] == CLASSIC_SESSION:
                self._classic.rebalance.session_expired(group, key[2])
            elif key[0] == JOIN:
                self._classic.rebalance.join_timer_expired(group)
            elif key[0] == SYNC:
                self._classic.rebalance.sync_timer_expired(group)
        elif key[0] == PATTERNS:
            self.consumer.steps.resolve_patterns(group)
        elif key[0] in CONSUMER_TIMERS:
            member = group.members.get(key[2])
            if member is not None:
                self._fence(group, [member])

    # -- the new protocol

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        check_request(request, client.version, self._ledger.env.settings.consumer_assignors)
        group = self._ledger.groups.get(request.group_id)
        if request.member_epoch < JOINING:
            if not isinstance(group, ConsumerGroup):
                raise _not_consumer(request.group_id, group)
            leaver, response = self.consumer.leave(group, request)
            if leaver is not None:
                self._fence(group, [leaver])
            return response
        if not isinstance(group, ConsumerGroup):
            if request.member_epoch != JOINING or isinstance(group, ShareGroup | StreamsGroup):
                raise _not_consumer(request.group_id, group)
            if isinstance(group, ClassicGroup):
                group = self._migration.upgrade(group)
            else:
                group = ConsumerGroup(request.group_id)
        return self.consumer.heartbeat(group, request, client)

    def _fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members. If only classic members are left, the group becomes a classic group."""
        if self._migration.can_downgrade(group, members):
            self._classic.rebalance.prepare(self._migration.downgrade(group, members))
        else:
            self.consumer.fence(group, members)

    # -- the classic protocol

    def join(self, request: JoinGroupRequest, client: Client, reply_to: ReplyTo) -> JoinGroupResponse | None:
        settings = self._ledger.env.settings
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._ledger.groups.get(request.group_id)
        # A consumer group keeps all protocols of a member in its record, a classic group one of them.
        sizes = [len(protocol.metadata) for protocol in request.protocols]
        size = sum(sizes) if isinstance(group, ConsumerGroup) else min(sizes, default=0)
        if size > self._ledger.outbox.record_bytes_max():
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"protocol metadata of {size} bytes")
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return self._join_mixed(group, request, client)
            self._migration.erase(group)
            group = None
        elif isinstance(group, StreamsGroup) and group.is_empty:
            self._erase_streams(group)
            group = None
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, self._ledger.now_ms)
            self._ledger.groups[group.id] = group
            self._ledger.log(group_record(group))
        if not isinstance(group, ClassicGroup):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._classic.join(group, request, client, reply_to)

    def _join_mixed(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: Client
    ) -> JoinGroupResponse:
        response = self._mixed.join(group, request, client)
        if self._migration.can_downgrade(group, ()):
            # A classic member has replaced the last member of the new protocol. Its next request returns
            # REBALANCE_IN_PROGRESS.
            self._classic.rebalance.prepare(self._migration.downgrade(group, ()))
        return response

    def sync(self, request: SyncGroupRequest, reply_to: ReplyTo) -> SyncGroupResponse | None:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.sync(group, request)
        return self._classic.sync(group, request, reply_to)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.heartbeat(group, request)
        return self._classic.heartbeat(group, request)

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        group = self._member_group(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._classic.leave(group, request)
        leaving = self._mixed.leaving(group, request)
        members = {m.id: m for _, m in leaving if isinstance(m, ConsumerMember)}
        if members:
            self._fence(group, list(members.values()))
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=found if isinstance(found, ErrorCode) else ErrorCode.NONE,
                )
                for identity, found in leaving
            ]
        )

    def _member_group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """The group of a member's request. If the group does not exist, the error is UNKNOWN_MEMBER_ID."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._ledger.groups.get(group_id)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _not_consumer(group_id: str, group: object | None) -> ApiError:
    reason = "not found" if group is None else "is not a consumer group"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
