"""The group coordinator's shard: groups and offsets of one partition of `__consumer_offsets`.

It finds the part that decides a request, replays records, and starts what timers ask for. Requests of members
are those of `members`, `shares` and `streams`. Records to append and replies to send are in `outbox`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from penstock.coordination.ledger_shard import LedgerShard
from penstock.coordination.timers import TimerKey
from penstock.groups.classic import ClassicGroup
from penstock.groups.classic_rebalance import SESSION as CLASSIC_SESSION
from penstock.groups.classic_records import group_from_record
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_steps import SESSION as CONSUMER_SESSION
from penstock.groups.epoch_replay import ConsumerReplay, ShareReplay
from penstock.groups.ledger import Environment, GroupLedger
from penstock.groups.listing import delete_group, describe_classic, describe_consumer, list_groups
from penstock.groups.member_requests import MemberRequests
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
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup
from penstock.wire.apis.list_groups import ListedGroup
from penstock.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
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
        self.streams: Final = StreamsRequests(ledger)
        self.members: Final = MemberRequests(ledger, self.streams.erase)
        self.shares: Final = ShareRequests(ledger)
        self.share_admin: Final = ShareAdministration(ledger, self.shares, self.expire_sessions)
        self._retention = Retention(ledger, self.offsets, self.shares.state)
        self.streams_admin: Final = StreamsAdministration(self.streams)
        self._computations: Final = {
            **self.members.consumer.steps.computations,
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
        for group in list(self._ledger.groups.values()):
            if isinstance(group, ShareGroup):
                for sharer in group.members.values():
                    self.shares.keep_alive(group, sharer)
            elif isinstance(group, StreamsGroup):
                self.streams.resume(group)
            elif isinstance(group, ClassicGroup | ConsumerGroup):
                self.members.resume(group)
        self._retention.schedule()

    def timer_expired(self, key: TimerKey) -> None:
        if key[0] == RETENTION:
            self.expire_offsets()
            return
        if key[0] in self._computations:
            self._computations[key[0]].resume(key[1])
            return
        group = self._ledger.groups.get(key[1])
        if isinstance(group, ShareGroup):
            if key[0] == SHARE_SESSION:
                self.shares.session_expired(group, key[2])
        elif isinstance(group, StreamsGroup):
            self.streams.timer_expired(group, key)
        elif isinstance(group, ClassicGroup | ConsumerGroup):
            self.members.timer_expired(group, key)

    def topics_resolved(self, effect: ResolveTopicRegexes, found: Mapping[str, Collection[str]]) -> None:
        """The topics that the regular expressions of a group match, by expression."""
        group = self._ledger.groups.get(effect.group_id)
        if isinstance(group, ConsumerGroup):
            self.members.consumer.steps.patterns_resolved(group, effect, found)

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

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        return describe_consumer(self._ledger, group_id)

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
