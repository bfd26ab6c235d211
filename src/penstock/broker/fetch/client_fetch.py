"""The fetch of a client: which bytes of which partitions, and the response.

Bytes leave as file ranges that go to the socket unread. A consumer reads up to the high watermark, or up to
the last stable offset if it reads committed records only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.metrics import TopicStats
from penstock.broker.fetch.pipeline import SMALL_RANGE, Fetch, FetchEnvironment, FetchRead
from penstock.broker.fetch.sessions import FetchSession, WantedPartition
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.model.ids import TopicId
from penstock.replication.leader import LeaderState
from penstock.security.acls import Operation
from penstock.storage.log import Log
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

__all__ = ["ClientEnvironment", "ClientFetch", "FetchLimits", "read_partition"]

_STORAGE_ERROR_FROM: Final = 6
#: errors that do not end the wait for other partitions
_UNKNOWN: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class FetchLimits(NamedTuple):
    max_bytes: int
    #: read committed records only, up to the last stable offset
    committed: bool
    #: true if only a leader may answer: clients that know of racks may read from followers (KIP-392)
    only_leader: bool = True
    #: finds the replica that a client at an offset should rather read from, if any
    nearest: Callable[[LeaderState, int], int | None] | None = None


class ClientRead(FetchRead):
    """One pass over the partitions of a client's fetch."""

    __slots__ = ("answers", "errors", "quiet", "served")

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[PartitionData] = []
        #: the topics that bytes were read of, and how many
        self.served: list[tuple[TopicStats, int]] = []
        #: partitions that are read to their end, with their places in `answers`, see `describe_quiet`
        self.quiet: list[tuple[int, Partition]] = []
        self.errors = 0

    def describe_quiet(self, committed: bool) -> None:
        """Build the answers that `ClientFetch.read` left out, because most fetches wait instead."""
        for position, partition in self.quiet:
            answer = self.answers[position] = _described(partition, partition.index)
            if committed:
                answer.aborted_transactions = []
        self.quiet = []


@dataclass(frozen=True, slots=True)
class ClientEnvironment(FetchEnvironment):
    hints: LeaderHints
    #: None if every client may read everything
    access: Access | None = None


class ClientFetch(Fetch[ClientRead]):
    """One Fetch request of a client."""

    __slots__ = ("_find", "_incremental", "_limits", "_session", "_waited_for", "_wanted")

    environment: ClientEnvironment

    def __init__(
        self,
        context: Context,
        environment: ClientEnvironment,
        wanted: Sequence[WantedPartition],
        limits: FetchLimits,
        session: FetchSession | None = None,
        incremental: bool = False,
    ) -> None:
        self.context = context
        self.environment = environment
        self._wanted = wanted
        self._limits = limits
        self._session = session
        self._incremental = incremental
        find, access = environment.partitions.find, environment.access
        self._find = find if access is None else access.finder(context, Operation.READ, find)

    def read(self, may_wait: bool) -> ClientRead:
        """Read every partition in order, within the limits, but at least one batch of the first with any.

        With `may_wait`, partitions that are read to their end are `quiet`: their answers are left out.
        """
        read = ClientRead()
        find, limits = self._find, self._limits
        left = limits.max_bytes
        for want in self._wanted:
            partition = find(want.topic, want.index)
            if isinstance(partition, ErrorCode):
                answer = _failed(want.index, partition)
            else:
                try:
                    answer = read_partition(partition, want, left, limits, not read.size, may_wait)
                    if answer is _QUIET:
                        read.quiet.append((len(read.answers), partition))
                        read.answers.append(answer)
                        continue
                except ApiError as e:
                    answer = _failed(want.index, e.code)
                    answer.aborted_transactions = None
                except ColdPages as e:
                    read.cold.append((partition, e))
                    answer = _described(partition, want.index)
            if answer.records:
                size = len(answer.records)
                read.size += size
                # An error code has no records.
                read.served.append((partition.stats, size))  # type: ignore[union-attr]
                left = max(0, left - size)
            if answer.error_code:
                read.errors += 1
                # Like Kafka, an unknown partition does not end the wait for the others: a client that
                # fetches it again and again beside idle partitions would spin.
                read.is_urgent |= partition not in _UNKNOWN
            elif answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
                read.is_urgent = True
            read.answers.append(answer)
        return read

    def still_missing(self, read: ClientRead, missing: int) -> int:
        """Like Kafka, wait only if all bytes up to each partition's limit are less than the minimum.

        A read may have returned less, because batches are not cut and because of the limit of the whole
        fetch. Waiting would not bring more of those.
        """
        if read.size:
            available = self._available_bytes()
            if available is None:
                return 0
            missing = min(missing, missing + read.size - available)
        find = self._find
        #: the partitions whose growth ends the wait
        self._waited_for = [
            partition
            for want in self._wanted
            if not isinstance(partition := find(want.topic, want.index), ErrorCode)
        ]
        return missing if self._waited_for else 0

    def _available_bytes(self) -> int | None:
        """The bytes of all partitions up to the limit of each; None if one has a lot (`bytes_between`)."""
        size, committed = 0, self._limits.committed
        for want in self._wanted:
            partition = self._find(want.topic, want.index)
            if isinstance(partition, ErrorCode):
                continue
            available = partition.log.bytes_between(want.fetch_offset, partition.readable_end(committed))
            if available is None:
                return None
            size += min(available, want.max_bytes)
        return size

    def subscribe(self) -> None:
        committed = self._limits.committed
        for partition in self._waited_for:
            if committed:
                partition.committed_waiters[self] = partition.log.last_stable_offset
            else:
                partition.waiters[self] = None

    def unsubscribe(self) -> None:
        committed = self._limits.committed
        for partition in self._waited_for:
            (partition.committed_waiters if committed else partition.waiters).pop(self, None)

    def respond(self, read: ClientRead) -> FetchResponse:
        if read.quiet:
            read.describe_quiet(self._limits.committed)
        if read.errors and self.context.version < _STORAGE_ERROR_FROM:
            _rename_storage_errors(read.answers)
        session = self._session
        for stats, size in read.served:
            stats.bytes_out += size
        answers: Iterable[tuple[WantedPartition, PartitionData]] = zip(
            self._wanted, read.answers, strict=True
        )
        if session is not None:
            answers = [pair for pair in answers if pair[0].mark_sent(pair[1]) or not self._incremental]
            if self._incremental:
                for want, answer in answers:
                    if answer.records:
                        session.move_to_end(want)
        response = FetchResponse(session_id=session.id if session is not None else 0)
        topics = response.responses
        last_key: object = None
        for want, answer in answers:
            if want.topic != last_key:
                last_key = want.topic
                if isinstance(want.topic, str):
                    topics.append(FetchableTopicResponse(topic=want.topic))
                else:
                    topics.append(FetchableTopicResponse(topic_id=want.topic))
            topics[-1].partitions.append(answer)
        if read.errors:
            self.environment.metrics.fetch_errors += read.errors
            self.context.stats.count_errors(answer.error_code for answer in read.answers)
            self._add_leader_hints(response)
        return response

    def _add_leader_hints(self, response: FetchResponse) -> None:
        answers = (
            (topic.topic or TopicId(topic.topic_id), answer.partition_index, answer)
            for topic in response.responses
            for answer in topic.partitions
        )
        listener = self.context.listener.name
        response.node_endpoints = self.environment.hints.add(
            answers, listener, LeaderIdAndEpoch, NodeEndpoint
        )


#: stands for an answer that is not built yet
_QUIET: Final = PartitionData()


def read_partition(
    partition: Partition,
    want: WantedPartition,
    left: int,
    limits: FetchLimits,
    at_least_one: bool,
    may_wait: bool = False,
) -> PartitionData:
    """The answer for one partition, with up to `left` bytes. Raises ApiError, or ColdPages to be loaded.

    Longer than other functions because every fetch runs it: a call for each step would cost more.
    """
    _, committed, only_leader, nearest = limits
    partition.check_leader_epoch(want.current_leader_epoch, only_leader)
    if partition.flusher.health.offline is not None:
        partition.check_online()
    log = partition.log
    if want.last_fetched_epoch >= 0:
        epoch, end = partition.end_offset_for_epoch(want.last_fetched_epoch)
        if end < 0:
            raise OffsetOutOfRange
        if epoch < want.last_fetched_epoch or end < want.fetch_offset:
            return _diverging(partition, want.index, epoch, end)
    if nearest is not None and partition.leadership is not None:
        replica = nearest(partition.leadership.state, want.fetch_offset)
        if replica is not None:
            return _redirected(partition, want.index, replica)
    upper = partition.readable_end(committed)
    if may_wait and want.fetch_offset == upper:
        return _QUIET
    answer = _described(partition, want.index)
    if upper == log.end_offset:
        newest = log.newest(want.fetch_offset)
        if newest is not None and (at_least_one or len(newest) <= min(left, want.max_bytes)):
            answer.records = newest
            if committed:
                answer.aborted_transactions = []
            return answer
    if left or at_least_one:
        limit = min(want.max_bytes, left)
        found = log.read(want.fetch_offset, limit, upper=upper, at_least_one=at_least_one, cached_only=True)
        if found is not None:
            if committed:
                upper = min(upper, log.offset_behind(want.fetch_offset, found))
            try:
                answer.records = found.read() if found.size <= SMALL_RANGE else found
            except OSError as e:
                raise partition.read_failed(e) from e
    elif not log.log_start_offset <= want.fetch_offset <= log.end_offset:
        raise OffsetOutOfRange
    if committed:
        # Like Kafka, a response without records lists no transactions.
        answer.aborted_transactions = _aborted(log, want.fetch_offset, upper) if answer.records else []
    return answer


def _diverging(partition: Partition, index: int, epoch: int, end_offset: int) -> PartitionData:
    """The answer to a client whose last epoch ends at `end_offset` in this log: it has to truncate."""
    answer = _described(partition, index)
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer


def _redirected(partition: Partition, index: int, replica: int) -> PartitionData:
    """The answer to a client that is to fetch from a replica in its rack (KIP-392)."""
    answer = _described(partition, index)
    answer.preferred_read_replica = replica
    return answer


def _aborted(log: Log, start: int, upper: int) -> list[AbortedTransaction]:
    """The aborted transactions in a range; ColdPages if their index has to be read from the disk."""
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first)
        for producer_id, first in log.aborted_transactions(start, upper, cached_only=True)
    ]


def _described(partition: Partition, index: int) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        # Only a consumer of committed records receives a list.
        aborted_transactions=None,
        records=b"",
    )


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")


def _rename_storage_errors(answers: Iterable[PartitionData]) -> None:
    """Have clients of versions without this error look for another leader, as Kafka does."""
    for answer in answers:
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
