"""One partition's share of all groups: the state machine that a coordinator runtime drives.

A method per request: it returns the response, or raises the ApiError that becomes one, or returns None and
answers the asker in this or a later turn. What it wants appended and whom it answers is in `outbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from penstock.groups.classic import ClassicGroup
from penstock.groups.classic_rebalance import JOIN, SESSION, SYNC
from penstock.groups.classic_requests import ClassicRequests
from penstock.groups.ledger import Asker, Client, Environment, Ledger, Outbox
from penstock.groups.listing import delete_group, describe_classic, list_groups
from penstock.groups.offsets import Offsets
from penstock.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode_record,
)
from penstock.groups.timers import TimerKey, Timers
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.apis.list_groups import ListedGroup
from penstock.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.apis.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["GroupShard"]

_RETENTION: Final = "retention"


class GroupShard:
    """Groups and offsets of one partition of `__consumer_offsets`."""

    def __init__(self, env: Environment) -> None:
        ledger = self._ledger = Ledger(env)
        ledger.apply = self._apply
        self.offsets: Final = Offsets(ledger)
        self._classic = ClassicRequests(ledger)
        self._replays: dict[type[Any], Callable[[Any, Any], None]] = {
            OffsetCommitKey: self.offsets.replay,
            GroupMetadataKey: self._replay_classic,
        }

    # -- for the runtime

    @property
    def timers(self) -> Timers:
        return self._ledger.timers

    @property
    def outbox(self) -> Outbox:
        return self._ledger.outbox

    def begin(self, now_ms: int, timer_ms: int) -> None:
        self._ledger.begin(now_ms, timer_ms)

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in a record of the log."""
        record = decode_record(key, value)
        if record is not None:
            self._apply(*record)

    def loaded(self) -> None:
        """The log has been replayed: from now on members have to show that they are alive."""
        settings = self._ledger.env.settings
        for group in list(self._ledger.groups.values()):
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._classic.rebalance.keep_alive(group, member)
                if len(group.members) > settings.classic_size_max:
                    self._classic.rebalance.prepare(group)
        self.timers.schedule((_RETENTION,), settings.retention_check_ms)

    def time_is_up(self, key: TimerKey) -> None:
        """The timer `key` has expired."""
        if key[0] == _RETENTION:
            self._expire()
            return
        group = self._ledger.groups.get(key[1])
        if isinstance(group, ClassicGroup):
            if key[0] == SESSION:
                self._classic.rebalance.session_is_over(group, key[2])
            elif key[0] == JOIN:
                self._classic.rebalance.join_time_is_up(group)
            elif key[0] == SYNC:
                self._classic.rebalance.sync_time_is_up(group)

    # -- the classic protocol

    def join(self, request: JoinGroupRequest, client: Client, asker: Asker) -> JoinGroupResponse | None:
        settings = self._ledger.env.settings
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._ledger.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = ClassicGroup(request.group_id, self._ledger.now_ms)
            self._ledger.groups[group.id] = group
            self._ledger.log(*group.record())
        assert isinstance(group, ClassicGroup)
        return self._classic.join(group, request, client, asker)

    def sync(self, request: SyncGroupRequest, asker: Asker) -> SyncGroupResponse | None:
        return self._classic.sync(self._member_group(request.group_id), request, asker)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return self._classic.heartbeat(self._member_group(request.group_id), request)

    def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        return self._classic.leave(self._member_group(request.group_id), request)

    def _member_group(self, group_id: str) -> ClassicGroup:
        """The group that a request of a member is for; to a member, an unknown group is an unknown member."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._ledger.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        assert isinstance(group, ClassicGroup)
        return group

    # -- offsets

    def commit(self, request: OffsetCommitRequest, client: Client) -> OffsetCommitResponse:
        return self.offsets.commit(request, client)

    def fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        return self.offsets.fetch(request)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return self.offsets.delete(request)

    def topics_deleted(self, topics: Sequence[tuple[str, bytes]]) -> None:
        for name, topic_id in topics:
            self.offsets.topic_deleted(name, topic_id)

    # -- administration

    def list(self, states: Collection[str], types: Collection[str]) -> Sequence[ListedGroup]:
        return [*list_groups(self._ledger, states, types)]

    def describe(self, group_id: str) -> DescribedGroup:
        return describe_classic(self._ledger, group_id)

    def delete(self, group_id: str) -> DeletableGroupResult:
        return delete_group(self._ledger, self.offsets, group_id)

    # -- details

    def _apply(self, key: Any, value: Any) -> None:
        self._replays[type(key)](key, value)

    def _replay_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._ledger.groups.pop(key.group, None)
        else:
            self._ledger.groups[key.group] = ClassicGroup.from_record(key, value)

    def _expire(self) -> None:
        """Forget unused offsets, and empty groups that have none."""
        for group in list(self._ledger.groups.values()):
            if self.offsets.expire(group) and group.is_empty and not _is_joined(group):
                for key in group.record_keys():
                    self._ledger.write(key, None)
        self.timers.schedule((_RETENTION,), self._ledger.env.settings.retention_check_ms)


def _is_joined(group: object) -> bool:
    """Whether someone has an id in the group and is about to come back with it."""
    return isinstance(group, ClassicGroup) and bool(group.pending_joins)
