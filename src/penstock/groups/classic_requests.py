"""Decisions on the requests of classic members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each method returns the response, or raises the ApiError that becomes the response, or returns None: then
the request waits, and the rebalance replies to `reply_to`. Error codes are Kafka's.
"""

from __future__ import annotations

from typing import Final

from penstock.coordination.outbox import ReplyTo
from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.classic_rebalance import SESSION, Rebalance, joined, synced
from penstock.groups.classic_records import group_record
from penstock.groups.ledger import Client, GroupLedger
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicRequests"]

#: the first version of JoinGroup in which a new member gets its id first and joins with it (KIP-394)
_ID_REQUIRED_FROM: Final = 4
#: the first version with SkipAssignment
_SKIPS_ASSIGNMENT_FROM: Final = 9


class ClassicRequests:
    """The classic protocol of one shard's classic groups."""

    __slots__ = ("_ledger", "_timers", "rebalance")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self._timers = ledger.timers
        self.rebalance: Final = Rebalance(ledger)

    # -- JoinGroup

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, reply_to: ReplyTo
    ) -> JoinGroupResponse | None:
        member_id = request.member_id
        if not self._has_room(group, member_id):
            group.remove(member_id)
            return JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
        protocols = {p.name: p.metadata for p in request.protocols}
        if not group.supports(request.protocol_type, protocols):
            return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            return self._join_new(group, request, client, reply_to)
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:
                return _refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            self._add(group, member_id, request, client, reply_to)
            return None
        try:
            group.check_member(member_id, request.group_instance_id)
        except ApiError as e:
            return _refused(e.code, member_id)
        return self._join_again(group, group.members[member_id], request, reply_to)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._ledger.env.settings.classic_size_max
        if group.state is ClassicState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING:
            # Counts the members that have joined. So a group that is too large shrinks: the last to join
            # are out.
            return (member is not None and member.join is not None) or group.awaiting < most
        return member is not None or len(group.members) < most

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, reply_to: ReplyTo
    ) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id
        new_id = f"{client.id if instance_id is None else instance_id}-{self._ledger.env.new_uuid()}"
        if instance_id is not None:
            old_id = group.instances.get(instance_id)
            if old_id is not None:
                return self._replace_static(group, group.members[old_id], new_id, request, client, reply_to)
        elif client.version >= _ID_REQUIRED_FROM:
            group.pending_joins.add(new_id)
            self._timers.schedule((SESSION, group.id, new_id), request.session_timeout_ms)
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
        self._add(group, new_id, request, client, reply_to)
        return None

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        reply_to: ReplyTo,
    ) -> None:
        member = ClassicMember(
            id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.id,
            client_host=client.host,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols={p.name: p.metadata for p in request.protocols},
        )
        self.rebalance.add(group, member, request.protocol_type, reply_to)

    def _join_again(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, reply_to: ReplyTo
    ) -> JoinGroupResponse | None:
        state = group.state
        if state is ClassicState.EMPTY:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, member.id)
        same = member.matches({p.name: p.metadata for p in request.protocols})
        if state is ClassicState.COMPLETING and same:
            # The response to its first JoinGroup was lost.
            return joined(group, member)
        if state is ClassicState.STABLE and same and group.leader != member.id:
            return joined(group, member)
        self._update(group, member, request, reply_to)
        self.rebalance.changed(group)
        return None

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, reply_to: ReplyTo
    ) -> None:
        protocols = {p.name: p.metadata for p in request.protocols}
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        group.await_join(member, reply_to)

    def _replace_static(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        new_id: str,
        request: JoinGroupRequest,
        client: Client,
        reply_to: ReplyTo,
    ) -> JoinGroupResponse | None:
        """Give a static member that rejoins its new id. Requests with the old id are fenced (KIP-345)."""
        old_id, old_leader = member.id, group.leader
        waiting = group.end_join(member)
        if waiting is not None:
            self._ledger.reply(waiting, _refused(ErrorCode.FENCED_INSTANCE_ID, old_id))
        if member.sync is not None:
            self._ledger.reply(member.sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
            member.sync = None
        self._timers.cancel((SESSION, group.id, old_id))
        group.rename(member, new_id)
        protocols = {p.name: p.metadata for p in request.protocols}
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        self.rebalance.keep_alive(group, member)
        is_same = group.state is ClassicState.STABLE and group.elected_protocol() == group.protocol
        if is_same and self.rebalance.fits_record(group):
            # Other members are not affected: the assignment of the generation still holds.
            self._ledger.log(group_record(group))
            if client.version >= _SKIPS_ASSIGNMENT_FROM:
                return joined(group, member, skip_assignment=group.leader == new_id)
            # An older client would assign partitions if the response named it as leader.
            response = joined(group, member)
            response.leader = old_leader or ""
            response.members = []
            return response
        group.await_join(member, reply_to)
        self.rebalance.changed(group)
        return None

    # -- SyncGroup

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, reply_to: ReplyTo
    ) -> SyncGroupResponse | None:
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol
        ):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicState.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[request.member_id]
        self.rebalance.synced(group, member.id)
        if group.state is ClassicState.STABLE:
            return synced(group, member)
        member.sync = reply_to
        if group.leader == member.id:
            self.rebalance.complete_sync(group, {a.member_id: a.assignment for a in request.assignments})
        return None

    # -- Heartbeat

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> HeartbeatResponse:
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        self.rebalance.keep_alive(group, group.members[request.member_id])
        if group.state is ClassicState.PREPARING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # -- LeaveGroup

    def leave(self, group: ClassicGroup, request: LeaveGroupRequest) -> LeaveGroupResponse:
        responses = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave_one(group, identity),
            )
            for identity in request.members
        ]
        if any(response.error_code == ErrorCode.NONE for response in responses) and not group.is_empty:
            self.rebalance.changed(group)
        return LeaveGroupResponse(members=responses)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # An administrator removes a static member by its instance id.
            known = group.instances.get(identity.group_instance_id or "")
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._timers.cancel((SESSION, group.id, member_id))
            return ErrorCode.NONE
        else:
            try:
                group.check_member(member_id, identity.group_instance_id)
            except ApiError as e:
                return e.code
        self.rebalance.remove(group, group.members[member_id])
        return ErrorCode.NONE


def _refused(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def _differs(requested: str | None, known: str | None) -> bool:
    return requested is not None and known is not None and requested != known


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has the session timeout only."""
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms < 0 else timeout_ms
