"""The fetch of a client: its limits over all partitions, and the response. `partition_read` reads each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.base.data_access import DataAccess
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.metrics import TopicStats
from penstock.broker.fetch.partition_read import QUIET, FetchLimits, described, failed, read_partition
from penstock.broker.fetch.pipeline import Fetch, FetchEnvironment, FetchRead
from penstock.broker.fetch.sessions import FetchSession, WantedPartition
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.security.acls import Operation
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

__all__ = ["ClientEnvironment", "ClientFetch"]

_STORAGE_ERROR_FROM: Final = 6
#: errors that do not end the wait for other partitions
_UNKNOWN: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


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
            answer = self.answers[position] = described(partition, partition.index)
            if committed:
                answer.aborted_transactions = []
        self.quiet = []


@dataclass(frozen=True, slots=True)
class ClientEnvironment(FetchEnvironment):
    hints: LeaderHints
    #: closes the fetch session of an id
    close_session: Callable[[int], None]
    #: None if every client may read everything
    access: Access | None = None
    #: None if no topic's reads are audited
    accesses: DataAccess | None = None


class ClientFetch(Fetch[ClientRead]):
    """One Fetch request of a client."""

    __slots__ = ("_find", "_incremental", "_limits", "_session", "_waited_for", "_wanted")

    environment: ClientEnvironment
    new_read: Callable[[], ClientRead] = ClientRead

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
        read = self.new_read()
        find, limits = self._find, self._limits
        left = limits.max_bytes
        for want in self._wanted:
            partition = find(want.topic, want.index)
            if isinstance(partition, ErrorCode):
                answer = failed(want.index, partition)
            else:
                try:
                    answer = read_partition(partition, want, left, limits, not read.size, may_wait)
                    if answer is QUIET:
                        read.quiet.append((len(read.answers), partition))
                        read.answers.append(answer)
                        continue
                except ApiError as e:
                    answer = failed(want.index, e.code)
                    answer.aborted_transactions = None
                except ColdPages as e:
                    read.cold.append((partition, e))
                    answer = described(partition, want.index)
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

    def part(self, wanted: Sequence[WantedPartition]) -> PartOfFetch:
        """The same fetch of some of its partitions."""
        return PartOfFetch(
            self.context, self.environment, wanted, self._limits, self._session, self._incremental
        )

    def throttled(self, read: ClientRead) -> FetchResponse | None:
        """The empty response to a client that has used up its quota; None for any other (KIP-219)."""
        meter = self.context.meter
        throttle_ms = 0 if meter is None else meter.charge_fetch(read.size)
        if not throttle_ms:
            return None
        # The fetch session stays as it is, so the next response has everything that this one leaves out.
        session = self._session
        if session is not None and not self._incremental:
            # Like Kafka: a full request that is throttled starts no session.
            self.environment.close_session(session.id)
            session = None
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=0 if session is None else session.id)

    @property
    def is_committed(self) -> bool:
        """Whether only committed records are read."""
        return self._limits.committed

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
            partition.readers[self] = partition.log.last_stable_offset if committed else None

    def unsubscribe(self) -> None:
        for partition in self._waited_for:
            partition.readers.pop(self, None)

    def respond(self, read: ClientRead) -> FetchResponse:
        if self.context.meter is not None and (throttled := self.throttled(read)) is not None:
            return throttled
        if read.quiet:
            read.describe_quiet(self._limits.committed)
        if read.errors and self.context.version < _STORAGE_ERROR_FROM:
            _rename_storage_errors(read.answers)
        session = self._session
        for stats, size in read.served:
            stats.bytes_out += size
        if self.environment.accesses is not None:
            self.environment.accesses.served(self.context, read.served)
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


class PartOfFetch(ClientFetch):
    """Some partitions of a large fetch."""

    __slots__ = ("_before",)

    def read_behind(self, before: int, may_wait: bool) -> ClientRead:
        """As `read`, within the limits of the whole fetch, of which `before` bytes were read already."""
        self._before, limits = before, self._limits
        self._limits = limits._replace(max_bytes=max(0, limits.max_bytes - before))
        try:
            return self.read(may_wait)
        finally:
            self._limits = limits

    def new_read(self) -> ClientRead:
        read = ClientRead()
        read.size = self._before
        return read

    def throttled(self, read: ClientRead) -> None:
        """The whole fetch is charged, not its parts."""


def _rename_storage_errors(answers: Iterable[PartitionData]) -> None:
    """Have clients of versions without this error look for another leader, as Kafka does."""
    for answer in answers:
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
