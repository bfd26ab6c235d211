"""Fetch as a follower asks it, on the internal listener: everything up to the end of the log.

For each partition that the request names, in this order: the leader epoch is checked, then whether the
follower's log is a prefix of ours (if not, where they part is all of the answer), then that its offset lies
in our log; then our leadership hears how far the follower is, which may commit records; then we read.

The usual request and its answer are read and written in a form of their own (`penstock.wire.replica_fetch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.fetch.reading import SMALL_RANGE
from penstock.broker.fetch.repeated_follower import SteadyFollower
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.sessions import FollowedPartition, ReplicaSession
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.model.ids import TopicId
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
from penstock.wire.compiler import Part
from penstock.wire.replica_fetch import FEW, Answer, ReplicaAsk, Told, ask_of, write_answer
from penstock.wire.schema import Records

__all__ = ["replica_fetch"]

_FULL: Final = 0
_NO_SESSION: Final = 0
_WARM_TRIES: Final = 3
_NOTHING: Final = b""

#: what goes back: a response, or the usual one, which is written as soon as its correlation id is known
_Response = FetchResponse | tuple[Callable[[int, Answer], list[Part]], Answer]


def replica_fetch(
    context: Context, request: FetchRequest | ReplicaAsk
) -> _Response | Deferred[_Response | None]:
    ask = request if isinstance(request, ReplicaAsk) else ask_of(request)
    broker = context.broker
    now_ms = int(broker.clock.monotonic() * 1000)
    try:
        session = broker.replicas.sessions.take(ask, now_ms)
    except ApiError as e:
        return FetchResponse(error_code=e.code)
    if SteadyFollower.may_take(ask):
        _remember(context, ask, session)
    return ReplicaFetch(context, ask, session, now_ms).run()


def _remember(context: Context, ask: ReplicaAsk, session: ReplicaSession) -> None:
    """Expect more of the kind on this connection."""
    steady = context.connection.memo
    if not isinstance(steady, SteadyFollower) or steady.session is not session or not steady.fits(ask):
        context.connection.memo = SteadyFollower(context, ask, session, ReplicaFetch)


class _Read:
    """What one look at a session's partitions found."""

    __slots__ = ("cold", "quiet", "size", "told", "troubles")

    def __init__(self) -> None:
        self.told: list[tuple[FollowedPartition, Partition, Records]] = []
        #: what the follower should hear of at once
        self.troubles: list[tuple[FollowedPartition, PartitionData]] = []
        self.size = 0
        self.cold: list[tuple[Partition, ColdPages]] = []
        #: read to their end: how far they are is told only if there is an answer now
        self.quiet: list[tuple[FollowedPartition, Partition, Records]] = []


class ReplicaFetch:
    """One fetch on its way: read, perhaps wait and read again, perhaps load what is cold, answer."""

    __slots__ = (
        "_ask",
        "_context",
        "_deferred",
        "_due",
        "_may_wait",
        "_missing",
        "_now_ms",
        "_session",
        "_timer",
    )

    def __init__(self, context: Context, ask: ReplicaAsk, session: ReplicaSession, now_ms: int) -> None:
        self._context = context
        self._ask = ask
        self._session = session
        self._now_ms = now_ms
        self._due = False
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> _Response | Deferred[_Response | None]:
        ask, session = self._ask, self._session
        if not ask.max_bytes:
            # Asked only to end the wait of the request before.
            return FetchResponse(session_id=session.id)
        # A full request is answered at once if it names anything.
        is_full = ask.session_epoch == _FULL and bool(session.ready)
        self._may_wait = ask.max_wait_ms > 0 and session.id != _NO_SESSION and not is_full
        read = self._read()
        self._missing = ask.min_bytes - read.size
        if self._missing <= 0 or not self._may_wait or read.troubles or read.cold:
            return self._answer(read)
        self._deferred: Deferred[_Response | None] = Deferred()
        self._deferred.on_cancel = self._unpark
        session.parked = self
        self._timer = asyncio.get_running_loop().call_later(ask.max_wait_ms / 1000, self._finish)
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
        self._deferred.resolve(FetchResponse(session_id=self._session.id))

    def _unpark(self) -> None:
        if self._session.parked is self:
            self._session.parked = None
        if self._timer is not None:
            self._timer.cancel()

    def _finish(self) -> None:
        if self._session.parked is not self or self._deferred.done:
            return
        self._unpark()
        self._now_ms = int(self._context.broker.clock.monotonic() * 1000)
        try:
            answer = self.read()
        except Exception as e:  # noqa: BLE001 - nobody else would tell the follower that waits
            self._context.failed(e)
            return
        if isinstance(answer, Deferred):
            answer.then(self._deferred.resolve)
        else:
            self._deferred.resolve(answer)

    # -- reading

    def read(self) -> _Response | Deferred[_Response | None]:
        """The answer with what there is now."""
        # What there is to tell is told, if it is no more than how far the log is.
        self._may_wait = False
        return self._answer(self._read())

    def _read(self) -> _Read:
        """Look at every partition that may have news; at least one batch of the first with any is read."""
        read = _Read()
        left = self._ask.max_bytes
        for followed in list(self._session.ready):
            self._look_at(followed, left - read.size, read)
        return read

    def _look_at(self, followed: FollowedPartition, left: int, read: _Read) -> None:
        """Find out what to tell of a partition."""
        partition = followed.partition
        if partition is None or not partition.hosted:
            slot = self._context.broker.partitions.find(followed.topic_id, followed.index)
            if isinstance(slot, ErrorCode):
                followed.unsubscribe()
                read.troubles.append((followed, _failed(followed.index, slot)))
                return
            partition = slot
            followed.subscribe(partition)
        try:
            if partition.flusher.health.offline is not None:
                partition.check_online()
            if followed.told is None or followed.told is not partition.leadership:
                parted = self._hear(partition, followed)
                if parted is not None:
                    read.troubles.append((followed, _parted(partition, parted)))
                    return
            if followed.fetch_offset < partition.log.end_offset:
                records = self._read_partition(partition, followed, left, at_least_one=not read.size)
                read.size += len(records)
                read.told.append((followed, partition, records))
            else:
                where = read.quiet if self._may_wait else read.told
                where.append((followed, partition, _NOTHING))
        except ApiError as e:
            read.troubles.append((followed, _failed(followed.index, e.code)))
        except ColdPages as e:
            read.cold.append((partition, e))
            read.told.append((followed, partition, _NOTHING))

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
    ) -> Records:
        if left <= 0 and not at_least_one:
            return _NOTHING
        throttles = self._context.broker.replicas.throttles
        is_throttled = throttles.holds_leader(partition, self._session.replica)
        if is_throttled and throttles.leader.exhausted(self._now_ms):
            return _NOTHING
        log = partition.log
        if at_least_one and not is_throttled:
            newest = log.newest(followed.fetch_offset)
            if newest is not None:
                return newest
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

    # -- answering

    def _answer(self, read: _Read) -> _Response | Deferred[_Response | None]:
        if read.cold:
            return self._context.spawn(self._warm(read))
        return self._build(read)

    async def _warm(self, read: _Read) -> _Response | None:
        """Have a worker thread bring in what the page cache lacks, then read again, as for any reader."""
        workers = self._context.broker.workers
        for _ in range(_WARM_TRIES):
            await warm_pages(workers, read.cold)
            read = self._read()
            if not read.cold:
                break
        return self._build(read)

    def _build(self, read: _Read) -> _Response:
        session, ask = self._session, self._ask
        is_full = ask.session_epoch <= _FULL
        told: list[Told] = []
        for followed, partition, records in read.told + read.quiet if read.quiet else read.told:
            log = partition.log
            high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
            if followed.tell(high_watermark, log_start_offset, records) or is_full:
                told.append((followed.topic_id, followed.index, high_watermark, log_start_offset, records))
        for followed, _ in read.troubles:
            followed.tell_of_trouble()
        if session.id == _NO_SESSION:
            session.close()
        self._context.broker.metrics.replication_bytes_out += read.size
        if ask.is_usual and not read.troubles and len(told) <= FEW:
            return write_answer, (session.id, told)
        return _response(session.id, told, read.troubles)


def _response(
    session_id: int, told: list[Told], troubles: list[tuple[FollowedPartition, PartitionData]]
) -> FetchResponse:
    response = FetchResponse(session_id=session_id)
    topics = response.responses
    answers: list[tuple[TopicId, PartitionData]] = [
        (topic_id, _described(index, high_watermark, log_start_offset, records))
        for topic_id, index, high_watermark, log_start_offset, records in told
    ]
    answers += [(followed.topic_id, answer) for followed, answer in troubles]
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


def _parted(partition: Partition, parted: EpochEnd) -> PartitionData:
    log = partition.log
    answer = _described(partition.index, log.high_watermark, log.log_start_offset)
    answer.diverging_epoch = EpochEndOffset(epoch=parted.epoch, end_offset=parted.end_offset)
    return answer


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=_NOTHING)
