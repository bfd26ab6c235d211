"""Reading a range of offsets of one partition, as fast as a broker sends.

While one fetch is decoded and the caller takes its rows, the next one is already under way: where it starts
is known from the headers of batches alone. Leaders that move and connections that end are gone after; gaps in
offsets (compaction, aborted transactions, control batches) are normal. Records that are lost for good are an
error or are skipped, as the query says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from penstock.model.errors import ApiError, CorruptMessage, ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicPartition
from penstock.net.peer_errors import PeerGone
from penstock.ports import Buffer
from penstock.reading.connection import Attempts, Cluster, Connection
from penstock.reading.errors import DataLost, ReadingError
from penstock.reading.offsets import EARLIEST, list_offsets
from penstock.reading.planning import OffsetRange
from penstock.records.columnar import ALL_COLUMNS, ALL_TIMES, Wanted, decode
from penstock.records.committed import Aborted, PlacedBatch, committed
from penstock.records.record import iter_batches
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["RangeReader"]

#: Below the size up to which a frame reader keeps its buffer, so that no fetch allocates memory.
FETCH_BYTES: Final = (4 << 20) - (64 << 10)
_MAX_WAIT_MS: Final = 500
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_log: Final = logging.getLogger(__name__)


class _OutOfRange(ReadingError):
    """The broker has nothing at this offset any more, or not yet."""


class _Fetched(NamedTuple):
    """One fetch response; its first batch may begin before the requested offset."""

    offset: int
    #: of the connection's buffer
    data: Buffer
    batches: list[PlacedBatch]
    aborted: list[Aborted]


@dataclass(slots=True)
class RangeReader:
    """Reads one range, once. `next_offset` moves from the range's start to its stop."""

    cluster: Cluster
    wanted: OffsetRange
    committed: bool
    fail_on_data_loss: bool
    #: what the caller does to skip records that are gone, for the message of the error
    to_skip: str = "Set failOnDataLoss=false"
    columns: frozenset[str] = ALL_COLUMNS
    #: timestamps in milliseconds
    times: range = ALL_TIMES
    next_offset: int = 0
    _connection: Connection | None = None

    def read(self) -> Iterator[Any]:
        """The columns of `records.columnar.decode`, batch by batch."""
        self.next_offset = self.wanted.start
        attempts = Attempts(self.cluster.endpoint.total_timeout_s)
        try:
            while self.next_offset < self.wanted.stop:
                try:
                    for fetched in self._fetches(attempts):
                        yield from self._decode(fetched)
                except (PeerGone, ApiError) as e:
                    self._recover(e, attempts)
                except _OutOfRange:
                    self._skip_to_log_start()
        finally:
            if self._connection is not None and not self._connection.is_idle:
                self._connection.close()

    def _fetches(self, attempts: Attempts) -> Iterator[_Fetched]:
        """Fetches from one leader; each is sent before the previous one is returned.

        `next_offset` advances only when everything before it was consumed, so no failure skips records.
        """
        topic, partition, stop = self.wanted.topic, self.wanted.partition, self.wanted.stop
        connection = self.cluster.connection(self.cluster.leader(topic, partition))
        self._connection = connection
        connection.send(FETCH, self._request(self.next_offset))
        while True:
            fetched = self._take_in(connection.receive())
            following = self.next_offset
            if fetched.batches:
                attempts.succeeded()
                following = max(following, fetched.batches[-1][1].next_offset)
            else:
                attempts.failed(_OutOfRange(f"nothing came from offset {following} on"))
            if following < stop:
                connection.send(FETCH, self._request(following))
            yield fetched
            self.next_offset = following
            if following >= stop:
                return

    def _take_in(self, response: FetchResponse) -> _Fetched:
        answer = _only_partition(response, self.wanted)
        data = cast("Buffer", answer.records or b"")  # never a file's range when decoded
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        return _Fetched(self.next_offset, data, list(iter_batches(data)), aborted)

    def _request(self, offset: int) -> FetchRequest:
        name = self.wanted.topic
        leader = self.cluster.view.leader(name, self.wanted.partition)
        partition = FetchPartition(
            partition=self.wanted.partition,
            current_leader_epoch=leader.epoch if leader else -1,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        topic_id = self.cluster.view.topic_id(name) or NO_TOPIC_ID
        return FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(self.committed),
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])],
        )

    def _decode(self, fetched: _Fetched) -> Iterator[Any]:
        shown: Iterable[PlacedBatch] = fetched.batches
        if self.committed:
            shown = committed(fetched.data, fetched.batches, fetched.aborted)
        wanted = Wanted(range(fetched.offset, self.wanted.stop), self.columns, self.times)
        try:
            yield from decode(fetched.data, shown, wanted)
        except CorruptMessage as e:
            # Some rows of this fetch may be on their way already: the task as a whole has to start over.
            raise ReadingError(f"{self.wanted.topic}-{self.wanted.partition}: {e}") from e

    def _recover(self, error: PeerGone | ApiError, attempts: Attempts) -> None:
        """Look up the current leader; raises if a retry is useless, or after too many."""
        if isinstance(error, ApiError):
            if reaction_to(error.code) is Reaction.FAIL:
                raise error
            if error.code in _GONE:
                self._recover_unknown(error, attempts)
                return
        attempts.failed(error)
        self.cluster.refresh([self.wanted.topic])

    def _recover_unknown(self, error: ApiError, attempts: Attempts) -> None:
        self.cluster.refresh([self.wanted.topic])
        if self.wanted.partition < self.cluster.view.partitions(self.wanted.topic):
            attempts.failed(error)
        else:
            self._lose(self.wanted.stop, "the topic, or this partition of it, is gone")

    def _skip_to_log_start(self) -> None:
        partition = TopicPartition(self.wanted.topic, self.wanted.partition)
        earliest = list_offsets(self.cluster, {partition: EARLIEST}, committed=False)[partition]
        if earliest <= self.next_offset:
            # The log ends before where we are.
            earliest = self.wanted.stop
        self._lose(
            min(earliest, self.wanted.stop),
            "deleted by retention, never written, or of an older topic with this name",
        )

    def _lose(self, until: int, why: str) -> None:
        """Skip the records before `until`, if the query allows that."""
        what = f"{self.wanted.topic}-{self.wanted.partition}: offsets {self.next_offset} to {until} are gone"
        if self.fail_on_data_loss:
            raise DataLost(f"{what}: {why}. {self.to_skip} to skip them")
        _log.warning("%s: %s", what, why)
        self.next_offset = until


def _only_partition(response: FetchResponse, wanted: OffsetRange) -> PartitionData:
    """The response of the one requested partition."""
    code = response.error_code
    if not code:
        answer: PartitionData = response.responses[0].partitions[0]
        code = answer.error_code
        if not code:
            return answer
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise _OutOfRange(f"{wanted.topic}-{wanted.partition}")
    raise ApiError(ErrorCode(code), f"{wanted.topic}-{wanted.partition}: {ErrorCode(code).name}")
