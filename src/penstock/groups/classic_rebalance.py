"""The rebalance of a classic group, which starts whenever its members change.

    Empty ──▶ PreparingRebalance ──▶ CompletingRebalance ──▶ Stable
                 ▲        │ no members       │                 │
                 │        └──▶ Empty         │                 │
                 └────────────────────────────┴─────────────────┘

In PreparingRebalance members send JoinGroup and wait. The state ends when all members have joined, or after
the longest rebalance timeout; members that have not joined by then are removed. In CompletingRebalance
members send SyncGroup and wait for the leader's assignment. The assignment is in the log before a member
gets it. The members that have joined are in memory only, as in Kafka: after a restart of the coordinator
members join again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.coordination.outbox import ReplyTo
from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.classic_records import fits_record, group_record
from penstock.groups.ledger import GroupLedger
from penstock.model.errors import ErrorCode
from penstock.wire.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.apis.sync_group import SyncGroupResponse

__all__ = ["JOIN", "SESSION", "SYNC", "Rebalance"]

#: kinds of timers: a member's session, the end of joining, the end of syncing
SESSION: Final = "classic-session"
JOIN: Final = "classic-join"
SYNC: Final = "classic-sync"


class Rebalance:
    """Moves classic groups from state to state."""

    __slots__ = ("_ledger", "_timers")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self._timers = ledger.timers

    # -- members

    def add(self, group: ClassicGroup, member: ClassicMember, protocol_type: str, reply_to: ReplyTo) -> None:
        """Add a new member and start a rebalance."""
        member.is_new = True
        if group.state is ClassicState.PREPARING and group.initial_delay is not None:
            group.member_added = True
        group.add(member, protocol_type, reply_to)
        # The member does not know its id yet and cannot send heartbeats, so its session timeout does not
        # apply. A client that gives up may join again with another id, so the time is bounded.
        self._timers.schedule(
            (SESSION, group.id, member.id), self._ledger.env.settings.new_member_join_timeout_ms
        )
        self.changed(group)

    def changed(self, group: ClassicGroup) -> None:
        """The members or their subscriptions have changed."""
        if group.state is ClassicState.PREPARING:
            self.complete_if_all_joined(group)
        else:
            self.prepare(group)

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member and fail its JoinGroup request, if one waits. The group stays in its state."""
        self._timers.cancel((SESSION, group.id, member.id))
        reply_to = group.end_join(member)
        if reply_to is not None:
            self._ledger.reply(reply_to, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.id)

    def keep_alive(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._timers.schedule((SESSION, group.id, member.id), member.session_timeout_ms)

    # -- states

    def prepare(self, group: ClassicGroup) -> None:
        """Start a rebalance: all members have to join again."""
        if group.state is ClassicState.COMPLETING:
            self._give_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._timers.cancel((SYNC, group.id))
        initial = group.state is ClassicState.EMPTY
        group.enter(ClassicState.PREPARING, self._ledger.now_ms)
        group.member_added = False
        if initial:
            # Members of a new group start one after the other: a delay saves rebalances.
            delay_ms = self._ledger.env.settings.initial_rebalance_delay_ms
            group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            self._timers.schedule((JOIN, group.id), delay_ms)
            return
        group.initial_delay = None
        if group.all_joined:
            self.complete_join(group)
        else:
            self._timers.schedule((JOIN, group.id), group.rebalance_timeout_ms)

    def complete_if_all_joined(self, group: ClassicGroup) -> None:
        if group.state is ClassicState.PREPARING and group.initial_delay is None and group.all_joined:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """End PreparingRebalance. Dynamic members that have not joined are removed, static members stay."""
        self._timers.cancel((JOIN, group.id))
        group.initial_delay = None
        late = [m.id for m in group.members.values() if m.join is None and m.instance_id is None]
        for member_id in late:
            group.remove(member_id)
            self._timers.cancel((SESSION, group.id, member_id))
        if group.members and not group.elect_leader():
            # Only static members are left, and none has joined: wait until they join or their sessions
            # expire.
            self._timers.schedule((JOIN, group.id), group.rebalance_timeout_ms)
            return
        group.next_generation(self._ledger.now_ms)
        if group.state is ClassicState.EMPTY:
            self._ledger.log(group_record(group))
            return
        build = _response_builder(group)
        for member in group.members.values():
            reply_to = group.end_join(member)
            if reply_to is not None:
                self._ledger.reply(reply_to, partial(build, member.id))
            self.keep_alive(group, member)
            member.is_new = False
        group.pending_syncs.update(group.members)
        self._timers.schedule((SYNC, group.id), group.rebalance_timeout_ms)

    def complete_sync(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignment, and reply to the SyncGroup requests once it is committed."""
        for member in group.members.values():
            member.assignment = assignments.get(member.id, b"")
        if not self.fits_record(group):
            # As in Kafka: the members get an error, and join again.
            self._give_assignments(group, ErrorCode.UNKNOWN_SERVER_ERROR)
            self.prepare(group)
            return
        group.enter(ClassicState.STABLE, self._ledger.now_ms)
        self._ledger.log(group_record(group))
        self._give_assignments(group, ErrorCode.NONE)

    def fits_record(self, group: ClassicGroup) -> bool:
        """Returns true if the log takes the group's record."""
        return fits_record(group, self._ledger.outbox.record_bytes_max())

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._timers.cancel((SYNC, group.id))

    def _give_assignments(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            if error:
                member.assignment = b""
            if member.sync is not None:
                response = synced(group, member) if not error else SyncGroupResponse(error_code=error)
                self._ledger.reply(member.sync, response)
                member.sync = None
                self.keep_alive(group, member)

    # -- timers

    def join_timer_expired(self, group: ClassicGroup) -> None:
        if group.state is not ClassicState.PREPARING:
            return
        if group.initial_delay is not None:
            delay_ms, rest_ms = group.initial_delay
            if group.member_added and rest_ms:
                group.member_added = False
                more_ms = min(self._ledger.env.settings.initial_rebalance_delay_ms, rest_ms)
                group.initial_delay = (more_ms, max(rest_ms - delay_ms, 0))
                self._timers.schedule((JOIN, group.id), more_ms)
                return
        self.complete_join(group)

    def sync_timer_expired(self, group: ClassicGroup) -> None:
        if group.state in (ClassicState.COMPLETING, ClassicState.STABLE) and group.pending_syncs:
            for member_id in list(group.pending_syncs):
                self._timers.cancel((SESSION, group.id, member_id))
                group.remove(member_id)
            self.prepare(group)

    def session_expired(self, group: ClassicGroup, member_id: str) -> None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            self.complete_if_all_joined(group)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if not member.is_new and (member.join is not None or member.sync is not None):
            # It waits for a reply, so it is alive. Its next session starts with the reply.
            return
        self.remove(group, member)
        if group.state is not ClassicState.EMPTY:
            self.changed(group)


def joined(group: ClassicGroup, member: ClassicMember, skip_assignment: bool = False) -> JoinGroupResponse:
    """The JoinGroup response of a member; for the leader it lists all members."""
    return _response_builder(group)(member.id, skip_assignment)


def _response_builder(group: ClassicGroup) -> Callable[..., JoinGroupResponse]:
    """A function that builds a member's JoinGroup response from the group's present generation."""
    leader, protocol = group.leader, group.protocol
    assert protocol is not None and leader is not None
    members = [(m.id, m.instance_id, m.protocols[protocol]) for m in group.members.values()]
    generation, protocol_type = group.generation, group.protocol_type

    def build(member_id: str, skip_assignment: bool = False) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=generation,
            protocol_type=protocol_type,
            protocol_name=protocol,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(member_id=id, group_instance_id=instance, metadata=metadata)
                for id, instance, metadata in members
            ]
            if member_id == leader
            else [],
        )

    return build


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
