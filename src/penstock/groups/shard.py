"""The group coordinator's shard: groups and offsets of one partition of `__consumer_offsets`.

A method per request. It returns the response, or raises the ApiError that becomes the response, or returns
None and replies to `reply_to` in this or a later turn. Records to append and replies to send are in
`outbox`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from penstock.coordination.ledger_shard import LedgerShard
from penstock.coordination.outbox import ReplyTo
from penstock.coordination.timers import TimerKey
from penstock.groups.classic import ClassicGroup
from penstock.groups.classic_rebalance import JOIN, SYNC
from penstock.groups.classic_rebalance import SESSION as CLASSIC_SESSION
from penstock.groups.classic_records import group_from_record, group_record
from penstock.groups.classic_requests import ClassicRequests
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.consumer_requests import JOINING, ConsumerRequests, check_request
from penstock.groups.consumer_steps import CONSUMER_TIMERS, PATTERNS
from penstock.groups.consumer_steps import SESSION as CONSUMER_SESSION
from penstock.groups.epoch_replay import ConsumerReplay, ShareReplay
from penstock.groups.ledger import Client, Environment, GroupLedger
from penstock.groups.listing import delete_group, describe_classic, describe_consumer, list_groups
from penstock.groups.migration import Migration
from penstock.groups.mixed import MixedRequests
from penstock.groups.offsets import Offsets
from penstock.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
)
from penstock.groups.retention import RETENTION, Retention
from penstock.groups.share_admin import ShareAdministration
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_requests import SHARE_SESSION, ShareRequests
from penstock.groups.share_targets import SHARE_TARGET
from penstock.groups.streams.admin import StreamsAdministration
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.replay import StreamsReplay
from penstock.groups.streams.requests import STREAMS_SESSION, StreamsRequests
from penstock.groups.streams.targets import STREAMS_TARGET
from penstock.groups.survey import GroupSurvey, survey_groups
from penstock.groups.topic_regexes import ResolveTopicRegexes
from penstock.groups.transactional_commits import commit_transactional
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from penstock.wire.apis.list_groups import ListedGroup
from penstock.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

__all__ = ["GroupShard"]

#: groups that are listed in one step
_LISTED_AT_ONCE: Final = 200
#: the timers of members' sessions, for all types of groups
_SESSIONS: Final = (CLASSIC_SESSION, CONSUMER_SESSION, SHARE_SESSION, STREAMS_SESSION)


class GroupShard(LedgerShard[GroupLedger]):
    """Groups and offsets of one partition of `__consumer_offsets`.

    Why more than 25 methods: one method per request, beside the interface of a shard. The classes that it
    composes decide.
    """

    def __init__(self, env: Environment) -> None:
        ledger = GroupLedger(env, self._apply)
        super().__init__(ledger)
        self.offsets: Final = Offsets(ledger)
        self._classic = ClassicRequests(ledger)
        self._consumer = ConsumerRequests(ledger)
        self._mixed = MixedRequests(ledger, self._consumer)
        self.shares: Final = ShareRequests(ledger)
        self.share_admin: Final = ShareAdministration(ledger, self.shares, self.expire_sessions)
        self._retention = Retention(ledger, self.offsets, self.shares.state)
        self._migration = Migration(ledger, self._consumer.steps, self._classic.rebalance)
        self.streams: Final = StreamsRequests(ledger, self._migration.erase_classic)
        self.streams_admin: Final = StreamsAdministration(self.streams)
        self._computations: Final = {
            **self._consumer.steps.computations,
            **self.shares.large.computations,
            SHARE_TARGET: self.shares.targets.computations,
            STREAMS_TARGET: self.streams.targets.computations,
        }
        self._replays: dict[type[Any], Callable[[Any, Any], None]] = {
            OffsetCommitKey: self.offsets.replay,
            GroupMetadataKey: self._replay_classic,
            **ConsumerReplay(ledger).by_key,
            **ShareReplay(ledger).by_key,
            **StreamsReplay(ledger).by_key,
        }

    # -- for the runtime

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply a record of the log. Offsets of a transactional batch are pending until its marker."""
        record = decode_record(key, value)
        if record is None:
            return
        if isinstance(record[0], OffsetCommitKey):
            committed = cast("OffsetCommitValue | None", record[1])
            self.offsets.replay_at(offset, producer_id, record[0], committed)
        else:
            self._apply(*record)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def survey(self) -> Iterator[GroupSurvey]:
        """The groups for the metrics. They may change between two of them."""
        return survey_groups(self._ledger.groups, self.offsets.by_group)

    def on_loaded(self) -> None:
        """Start the sessions of all members, and shrink groups that are too large for the configs."""
        settings = self._ledger.env.settings
        for group in list(self._ledger.groups.values()):
            if isinstance(group, ConsumerGroup):
                for consumer in group.members.values():
                    self._consumer.steps.resume(group, consumer)
            elif isinstance(group, ShareGroup):
                for sharer in group.members.values():
                    self.shares.keep_alive(group, sharer)
            elif isinstance(group, StreamsGroup):
                self.streams.resume(group)
            elif isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._classic.rebalance.keep_alive(group, member)
                if len(group.members) > settings.classic_size_max:
                    self._classic.rebalance.prepare(group)
        self._retention.schedule()

    def timer_expired(self, key: TimerKey) -> None:
        if key[0] == RETENTION:
            self.expire_offsets()
            return
        if key[0] in self._computations:
            self._computations[key[0]].resume(key[1])
            return
        group = self._ledger.groups.get(key[1])
        if isinstance(group, ClassicGroup):
            if key[0] == CLASSIC_SESSION:
                self._classic.rebalance.session_expired(group, key[2])
            elif key[0] == JOIN:
                self._classic.rebalance.join_timer_expired(group)
            elif key[0] == SYNC:
                self._classic.rebalance.sync_timer_expired(group)
        elif isinstance(group, ShareGroup):
            if key[0] == SHARE_SESSION:
                self.shares.session_expired(group, key[2])
        elif isinstance(group, StreamsGroup):
            self.streams.timer_expired(group, key)
        elif isinstance(group, ConsumerGroup) and key[0] == PATTERNS:
            self._consumer.steps.resolve_patterns(group)
        elif isinstance(group, ConsumerGroup) and key[0] in CONSUMER_TIMERS:
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
            leaver, response = self._consumer.leave(group, request)
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
        return self._consumer.heartbeat(group, request, client)

    def topics_resolved(self, effect: ResolveTopicRegexes, found: Mapping[str, Collection[str]]) -> None:
        """The topics that the regular expressions of a group match, by expression."""
        group = self._ledger.groups.get(effect.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumer.steps.patterns_resolved(group, effect, found)

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        return describe_consumer(self._ledger, group_id)

    def _fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members. If only classic members are left, the group becomes a classic group."""
        if self._migration.can_downgrade(group, members):
            self._classic.rebalance.prepare(self._migration.downgrade(group, members))
        else:
            self._consumer.fence(group, members)

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
        if size > self.outbox.record_bytes_max():
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"protocol metadata of {size} bytes")
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                return self._join_mixed(group, request, client)
            self._migration.erase(group)
            group = None
        elif isinstance(group, StreamsGroup) and group.is_empty:
            self.streams.erase(group)
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

    # -- offsets

    def commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        if request.generation_id_or_member_epoch < 0:
            self.expire_sessions(request.group_id)
        return self.offsets.commit(request, version)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, bytes], guard: object, size_max: int
    ) -> TxnOffsetCommitResponse:
        return commit_transactional(self._ledger, self.offsets, request, topic_ids, guard, size_max)

    def fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        return self.offsets.fetch(request, require_stable)

    def fetch_all(
        self, request: OffsetFetchRequestGroup, require_stable: bool = False
    ) -> Iterator[OffsetFetchResponseTopics]:
        return self.offsets.fetch_all(request, require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        self.expire_sessions(request.group_id)
        return self.offsets.delete(request)

    def topics_deleted(self, topics: Sequence[tuple[str, bytes]]) -> None:
        self.offsets.topics_deleted(topics)
        topic_ids = {topic_id for _, topic_id in topics}
        for group in list(self._ledger.groups.values()):
            if isinstance(group, ShareGroup):
                self.shares.state.topics_deleted(group, topic_ids)

    # -- administration

    def expire_sessions(self, group_id: str) -> None:
        """Remove the members of a group whose sessions have expired, before a request that needs it empty.

        Why: on a busy broker a timer runs after the requests that arrived before it. Requests of members do
        not call this: a heartbeat that the broker reads late must not find its session expired.
        """
        group = self._ledger.groups.get(group_id)
        for member_id in () if group is None else list(group.members):
            for kind in _SESSIONS:
                if self.timers.take_due((kind, group_id, member_id)):
                    self.timer_expired((kind, group_id, member_id))

    @property
    def group_count(self) -> int:
        return len(self._ledger.groups)

    def list(self, states: Collection[str], types: Collection[str]) -> Sequence[ListedGroup]:
        return [*list_groups(self._ledger.groups.values(), states, types)]

    def list_in_steps(
        self, states: Collection[str], types: Collection[str]
    ) -> Generator[None, None, Sequence[ListedGroup]]:
        """As `list`, for many groups. Groups may change between two steps."""
        groups = [*self._ledger.groups.values()]
        found: deque[ListedGroup] = deque()
        for start in range(0, len(groups), _LISTED_AT_ONCE):
            found.extend(list_groups(groups[start : start + _LISTED_AT_ONCE], states, types))
            yield
        return found

    def describe(self, group_id: str) -> DescribedGroup:
        return describe_classic(self._ledger, group_id)

    def delete(self, group_id: str) -> DeletableGroupResult:
        self.expire_sessions(group_id)
        return delete_group(self._ledger, self.offsets, group_id)

    # -- replay and retention

    def _apply(self, key: Any, value: Any) -> None:
        self._replays[type(key)](key, value)

    def _replay_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is not None:
            self._ledger.groups[key.group] = group_from_record(key, value)
        elif isinstance(self._ledger.groups.get(key.group), ClassicGroup):
            del self._ledger.groups[key.group]

    def expire_offsets(self) -> None:
        """Expire unused offsets, and delete empty groups without offsets: the next step of a check."""
        self._retention.run()


def _not_consumer(group_id: str, group: object | None) -> ApiError:
    reason = "not found" if group is None else "is not a consumer group"
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
