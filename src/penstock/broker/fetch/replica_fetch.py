"""The fetch of a follower: everything up to the end of the log, and the response.

For each partition the leader epoch is checked first. Then the follower's log must be a prefix of ours; if it
is not, the response has the diverging epoch and nothing else. Then the offset must lie in our log. Then the
position is reported to the partition's leadership, which may commit records. Only then the log is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.fetch.pipeline import SMALL_RANGE, Fetch, FetchEnvironment, FetchRead
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.sessions import FULL, NO_SESSION, FollowedPartition, ReplicaSession
from penstock.broker.replica.throttles import Throttles
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.model.ids import TopicId
from penstock.ports import Clock
from penstock.replication.epochs import EpochEnd, diverging_epoch
from penstock.storage.log import Log
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.compiler import Part
from penstock.wire.replica_fetch import (
    FEW,
    VERSIONS,
    FetchedPartition,
    ReplicaFetchResponse,
    write_response,
)
from penstock.wire.schema import Records

__all__ = ["ReplicaEnvironment", "ReplicaFetch"]

_NOTHING: Final = b""

#: a response, or the usual one with its writer
ReplicaResponse = (
    FetchResponse | tuple[Callable[[int, ReplicaFetchResponse], list[Part]], ReplicaFetchResponse]
)


class ReplicaRead(FetchRead):
    """One pass over a session's ready partitions."""

    __slots__ = ("fetched", "quiet", "refused")

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[FollowedPartition, Partition, Records]] = []
        #: partitions with an error or a divergence, which end the wait
        self.refused: list[tuple[FollowedPartition, PartitionData]] = []
        #: partitions that are read to their end: their watermarks are sent only if there is a response now
        self.quiet: list[tuple[FollowedPartition, Partition, Records]] = []


@dataclass(frozen=True, slots=True)
class ReplicaEnvironment(FetchEnvironment):
    clock: Clock
    throttles: Throttles
    #: None if every node may replicate
    access: Access | None = None


class ReplicaFetch(Fetch[ReplicaRead]):
    """One Fetch request of a follower."""

    __slots__ = ("_max_bytes", "_now_ms", "_session", "_session_epoch")

    environment: ReplicaEnvironment

    def __init__(
        self,
        context: Context,
        environment: ReplicaEnvironment,
        session: ReplicaSession,
        request: FetchRequest,
    ) -> None:
        """`request` belongs to `session`, which is updated by it."""
        self.context = context
        self.environment = environment
        self._session = session
        self._session_epoch = request.session_epoch
        self._max_bytes = request.max_bytes

    def read(self, may_wait: bool) -> ReplicaRead:
        """Read every partition that may have news; at least one batch of the first with any."""
        self._now_ms = int(self.environment.clock.monotonic() * 1000)
        read = ReplicaRead()
        for followed in list(self._session.ready):
            self._read_partition(followed, self._max_bytes - read.size, read, may_wait)
        read.is_urgent = bool(read.refused)
        return read

    def still_missing(self, read: ReplicaRead, missing: int) -> int:
        return missing

    def subscribe(self) -> None:
        self._session.waiting = self

    def unsubscribe(self) -> None:
        if self._session.waiting is self:
            self._session.waiting = None

    def _read_partition(
        self, followed: FollowedPartition, left: int, read: ReplicaRead, may_wait: bool
    ) -> None:
        partition = followed.partition
        if partition is None or not partition.hosted:
            found = self.environment.partitions.find(followed.topic_id, followed.index)
            if isinstance(found, ErrorCode):
                followed.unsubscribe()
                read.refused.append((followed, _failed(followed.index, found)))
                return
            partition = found
            followed.subscribe(partition)
        try:
            if partition.health.offline is not None:
                partition.health.check()
            if followed.accepted_by is None or followed.accepted_by is not partition.leadership:
                diverging = self._accept_position(partition, followed)
                if diverging is not None:
                    read.refused.append((followed, _diverging(partition, diverging)))
                    return
            if followed.fetch_offset < partition.log.end_offset:
                records = self._read_log(partition, followed, left, at_least_one=not read.size)
                read.size += len(records)
                read.fetched.append((followed, partition, records))
            else:
                where = read.quiet if may_wait else read.fetched
                where.append((followed, partition, _NOTHING))
        except ApiError as e:
            read.refused.append((followed, _failed(followed.index, e.code)))
        except ColdPages as e:
            read.cold.append((partition, e))
            read.fetched.append((followed, partition, _NOTHING))

    def _accept_position(self, partition: Partition, followed: FollowedPartition) -> EpochEnd | None:
        """Report the follower's position to the leadership; returns the epoch where the logs diverge, if any.

        A leader's log only grows. So a position that was accepted stays valid until the follower's next one.
        """
        partition.check_leader_epoch(followed.leader_epoch)
        log, offset = partition.log, followed.fetch_offset
        diverging = diverging_epoch(log, partition.leader_epoch, offset, followed.last_fetched_epoch)
        if diverging is None:
            if not log.log_start_offset <= offset <= log.end_offset:
                raise OffsetOutOfRange
            _check_local(log, offset)
            followed.report_position(partition, self._now_ms)
        return diverging

    def _read_log(
        self, partition: Partition, followed: FollowedPartition, left: int, at_least_one: bool
    ) -> Records:
        if left <= 0 and not at_least_one:
            return _NOTHING
        throttles = self.environment.throttles
        is_throttled = throttles.holds_leader(partition, self._session.replica)
        if is_throttled and throttles.leader.exhausted(self._now_ms):
            return _NOTHING
        log = partition.log
        if at_least_one and not is_throttled:
            newest = log.newest(followed.fetch_offset)
            if newest is not None:
                return newest
        _check_local(log, followed.fetch_offset)
        found = log.read(
            followed.fetch_offset,
            min(followed.max_bytes, left),
            upper=log.end_offset,
            at_least_one=at_least_one,
            cached_only=True,
        )
        if found is None:
            return _NOTHING
        if is_throttled:
            throttles.leader.spent(found.size, self._now_ms)
        try:
            return found.read() if found.size <= SMALL_RANGE else found
        except OSError as e:
            raise partition.read_failed(e) from e

    def respond(self, read: ReplicaRead) -> ReplicaResponse:
        session = self._session
        is_full = self._session_epoch <= FULL
        fetched: list[FetchedPartition] = []
        for followed, partition, records in read.fetched + read.quiet if read.quiet else read.fetched:
            log = partition.log
            high_watermark, log_start_offset = log.high_watermark, log.explained_start
            if followed.mark_sent(high_watermark, log_start_offset, records) or is_full:
                fetched.append((followed.topic_id, followed.index, high_watermark, log_start_offset, records))
        for followed, _ in read.refused:
            followed.mark_refused()
        if session.id == NO_SESSION:
            session.close()
        self.environment.metrics.replication_bytes_out += read.size
        if self.context.version in VERSIONS and not read.refused and len(fetched) <= FEW:
            return write_response, (session.id, fetched)
        return _response(session.id, fetched, read.refused)


def _check_local(log: Log, offset: int) -> None:
    """Refuse what only the archive has: the follower builds its state from there (KIP-405)."""
    if offset < log.local_log_start_offset:
        raise ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)


def _response(
    session_id: int,
    fetched: list[FetchedPartition],
    refused: list[tuple[FollowedPartition, PartitionData]],
) -> FetchResponse:
    response = FetchResponse(session_id=session_id)
    topics = response.responses
    answers: list[tuple[TopicId, PartitionData]] = [
        (topic_id, _described(index, high_watermark, log_start_offset, records))
        for topic_id, index, high_watermark, log_start_offset, records in fetched
    ]
    answers += [(followed.topic_id, answer) for followed, answer in refused]
    for topic_id, answer in answers:
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchableTopicResponse(topic_id=topic_id))
        topics[-1].partitions.append(answer)
    return response


def _described(
    index: int, high_watermark: int, log_start_offset: int, records: Records = _NOTHING
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        records=records,
    )


def _diverging(partition: Partition, diverging: EpochEnd) -> PartitionData:
    log = partition.log
    answer = _described(partition.index, log.high_watermark, log.explained_start)
    answer.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
    return answer


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=_NOTHING)
