"""Fetch as a follower asks it, on the internal listener: everything up to the end of the log.

For each partition that the request names, in this order: the leader epoch is checked, then whether the
follower's log is a prefix of ours (if not, where they part is all of the answer), then that its offset lies
in our log; then our leadership hears how far the follower is, which may commit records; then we read.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.context import Context
from penstock.broker.fetching import SMALL_RANGE
from penstock.broker.partition import Partition
from penstock.broker.replica_sessions import FollowedPartition, ReplicaSession
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.net.deferred import Deferred
from penstock.replication.epochs import EpochEnd, diverging_epoch
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

__all__ = ["replica_fetch"]

_REPLICA_STATE_FROM: Final = 15
_FULL: Final = 0
_NO_SESSION: Final = 0
_WARM_TRIES: Final = 3


def replica_fetch(context: Context, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse | None]:
    broker = context.broker
    replica, broker_epoch = request.replica_id, -1
    if context.version >= _REPLICA_STATE_FROM and request.replica_state is not None:
        replica, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    now_ms = int(broker.clock.monotonic() * 1000)
    try:
        session = broker.replicas.sessions.take(request, replica, broker_epoch, now_ms)
    except ApiError as e:
        return FetchResponse(error_code=e.code)
    return _ReplicaFetch(context, request, session, now_ms).run()


class _Read:
    """What one look at a session's partitions found."""

    __slots__ = ("answers", "cold", "is_urgent", "quiet", "size")

    def __init__(self) -> None:
        self.answers: list[tuple[FollowedPartition, PartitionData]] = []
        self.size = 0
        #: something that the follower should hear of at once
        self.is_urgent = False
        self.cold: list[tuple[Partition, ColdPages]] = []
        #: read to their end: how far they are is told only if there is an answer now
        self.quiet: list[tuple[FollowedPartition, Partition]] = []


class _ReplicaFetch:
    """One fetch on its way: read, perhaps wait and read again, perhaps load what is cold, answer."""

    __slots__ = (
        "_context",
        "_deferred",
        "_due",
        "_may_wait",
        "_missing",
        "_now_ms",
        "_request",
        "_session",
        "_timer",
    )

    def __init__(self, context: Context, request: FetchRequest, session: ReplicaSession, now_ms: int) -> None:
        self._context = context
        self._request = request
        self._session = session
        self._now_ms = now_ms
        self._missing = 0
        self._may_wait = False
        self._due = False
        self._deferred: Deferred[FetchResponse | None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> FetchResponse | Deferred[FetchResponse | None]:
        request = self._request
        if not request.max_bytes:
            # Asked only to end the wait of the request before.
            return FetchResponse(session_id=self._session.id)
        # A full request is answered at once if it names anything.
        is_full = request.session_epoch == _FULL and bool(self._session.ready)
        self._may_wait = request.max_wait_ms > 0 and self._session.id != _NO_SESSION and not is_full
        read = self._read()
        self._missing = request.min_bytes - read.size
        if self._missing <= 0 or not self._may_wait or read.is_urgent or read.cold:
            return self._answer(read)
        self._deferred = Deferred()
        # What there is to tell when the wait is over is told, if it is no more than how far the log is.
        self._may_wait = False
        self._deferred.on_cancel = self._unpark
        self._session.parked = self
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(request.max_wait_ms / 1000, self._finish)
        return self._deferred

    # -- waiting

    def more(self, size: int) -> None:
        """One of the partitions has news; finish after this turn of the loop, with all that it brings."""
        self._missing -= size
        if self._missing <= 0 and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._finish)

    def superseded(self) -> None:
        """The next request of the session is here: this one gets what there is, which is nothing."""
        self._unpark()
        assert self._deferred is not None
        self._deferred.resolve(FetchResponse(session_id=self._session.id))

    def _unpark(self) -> None:
        if self._session.parked is self:
            self._session.parked = None
        if self._timer is not None:
            self._timer.cancel()

    def _finish(self) -> None:
        assert self._deferred is not None
        if self._deferred.done or self._session.parked is not self:
            return
        self._unpark()
        self._now_ms = int(self._context.broker.clock.monotonic() * 1000)
        try:
            answer = self._answer(self._read())
        except Exception as e:  # noqa: BLE001 - nobody else would tell the follower that waits
            self._context.failed(e)
            return
        if isinstance(answer, FetchResponse):
            self._deferred.resolve(answer)
        else:
            answer.then(self._deferred.resolve)

    # -- reading

    def _read(self) -> _Read:
        """Look at every partition that may have news; at least one batch of the first with any is read."""
        read = _Read()
        left = self._request.max_bytes
        for followed in list(self._session.ready):
            answer = self._look_at(followed, left, read)
            if answer is None:
                continue
            if answer.records:
                size = len(answer.records)
                read.size += size
                left = max(0, left - size)
            elif answer.error_code or answer.diverging_epoch is not None:
                read.is_urgent = True
            read.answers.append((followed, answer))
        return read

    def _look_at(self, followed: FollowedPartition, left: int, read: _Read) -> PartitionData | None:
        """What to tell of a partition; None where that can wait until there is more."""
        partition = self._context.broker.partitions.find(followed.topic_id, followed.index)
        if isinstance(partition, ErrorCode):
            followed.unsubscribe()
            return _failed(followed.index, partition)
        followed.subscribe(partition)
        try:
            partition.check_online()
            if followed.told is None or followed.told is not partition.leadership:
                parted = self._hear(partition, followed)
                if parted is not None:
                    answer = _described(partition)
                    answer.diverging_epoch = EpochEndOffset(epoch=parted.epoch, end_offset=parted.end_offset)
                    return answer
            if self._may_wait and followed.fetch_offset == partition.log.end_offset:
                read.quiet.append((followed, partition))
                return None
            return self._read_partition(partition, followed, left, at_least_one=not read.size)
        except ApiError as e:
            return _failed(followed.index, e.code)
        except ColdPages as e:
            read.cold.append((partition, e))
            return _described(partition)

    def _hear(self, partition: Partition, followed: FollowedPartition) -> EpochEnd | None:
        """Tell our leadership how far the follower is; where its log is no prefix of ours, where they part.

        While we lead, our log only grows: what was found of a position then holds until the next one.
        """
        partition.check_leader_epoch(followed.leader_epoch)
        log, offset = partition.log, followed.fetch_offset
        parted = diverging_epoch(log, partition.leader_epoch, offset, followed.last_fetched_epoch)
        if parted is None:
            if not log.log_start_offset <= offset <= log.end_offset:
                raise OffsetOutOfRange
            followed.tell_leader(partition, self._now_ms)
        return parted

    def _read_partition(
        self, partition: Partition, followed: FollowedPartition, left: int, at_least_one: bool
    ) -> PartitionData:
        log, offset = partition.log, followed.fetch_offset
        # Only now: what the leadership has heard may have moved the high watermark.
        answer = _described(partition)
        if offset < log.end_offset and (left or at_least_one):
            throttles = self._context.broker.replicas.throttles
            is_throttled = throttles.holds_leader(partition, self._session.replica)
            if is_throttled and throttles.leader.exhausted(self._now_ms):
                return answer
            found = log.read(
                offset,
                min(followed.max_bytes, left),
                upper=log.end_offset,
                at_least_one=at_least_one,
                cached_only=True,
            )
            if found is not None:
                if is_throttled:
                    throttles.leader.spent(found.size, self._now_ms)
                try:
                    answer.records = found.read() if found.size <= SMALL_RANGE else found
                except OSError as e:
                    raise partition.read_failed(e) from e
        return answer

    # -- answering

    def _answer(self, read: _Read) -> FetchResponse | Deferred[FetchResponse | None]:
        if read.cold:
            return self._context.spawn(self._warm(read))
        return self._build(read)

    async def _warm(self, read: _Read) -> FetchResponse | None:
        """Have a worker thread bring in what the page cache lacks, then read again, as for any reader."""
        workers = self._context.broker.workers
        for _ in range(_WARM_TRIES):
            warmed = await asyncio.gather(
                *(workers.in_thread(pages.warm) for _, pages in read.cold), return_exceptions=True
            )
            for (partition, _), error in zip(read.cold, warmed, strict=True):
                if isinstance(error, OSError):
                    partition.read_failed(error)
            read = self._read()
            if not read.cold:
                break
        return self._build(read)

    def _build(self, read: _Read) -> FetchResponse:
        response = FetchResponse(session_id=self._session.id)
        incremental = self._request.session_epoch > _FULL
        topics = response.responses
        read.answers += [(followed, _described(partition)) for followed, partition in read.quiet]
        for followed, answer in read.answers:
            if incremental and not followed.is_news(answer):
                followed.sent(answer)
                continue
            followed.sent(answer)
            if not topics or topics[-1].topic_id != followed.topic_id:
                topics.append(FetchableTopicResponse(topic_id=followed.topic_id))
            topics[-1].partitions.append(answer)
        if self._session.id == _NO_SESSION:
            self._session.close()
        self._context.broker.metrics.replication_bytes_out += read.size
        return response


def _described(partition: Partition) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=partition.index,
        high_watermark=log.high_watermark,
        log_start_offset=log.log_start_offset,
        records=b"",
    )


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
