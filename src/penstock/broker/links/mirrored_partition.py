"""A partition that this broker leads and that a link mirrors: its appends, its log start, its end.

Owned by: the event loop's thread, and one leadership: a new leader epoch gets a new object.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.commits import check_enough_replicas
from penstock.broker.replica.given_offsets import (
    BATCHES_MAX,
    BYTES_MAX,
    append_at_offsets,
    check_and_stamp,
    start_empty_log,
)
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.txn_markers import Marker, append_marker
from penstock.linking.mirror import LastBatch, PartitionMirror, Phase
from penstock.model.config.mirrored_topics import MirroredTopic, MirrorState
from penstock.model.errors import CorruptMessage
from penstock.model.ids import TopicId, TopicPartition
from penstock.ports import Clock, FileRange
from penstock.records.batch import HEADER_SIZE, MAGIC, read_header
from penstock.replication.fetch_plan import PartitionKey
from penstock.replication.follower import FetchPosition
from penstock.storage.scan import CorruptLog

__all__ = ["Comparison", "MirroredPartition", "whole_batches"]

log = get_logger("links")


class Comparison(NamedTuple):
    """What the log of a returning partition has in common with the source."""

    common_offset: int
    #: the records of producers behind it
    divergent_records: int
    #: of the leader that has compared
    leader_epoch: int
    source_topic_id: TopicId


#: bytes that are not committed yet, above which nothing more is fetched
_UNCOMMITTED_MAX: Final = 64 << 20
#: how long to wait for followers then
_FOLLOWERS_MS: Final = 20
#: the end of the source's log before it was asked for: no mirror reaches it
_NOT_KNOWN: Final = 1 << 62
_MAGIC_POSITION: Final = 16
#: no cluster has given out so many producer ids
_PRODUCER_IDS_MAX: Final = 1 << 60


class MirroredPartition:
    """One partition, while this broker leads it in one leader epoch."""

    def __init__(self, partition: Partition, topic: MirroredTopic, source_epoch: int, clock: Clock) -> None:
        self.partition = partition
        self.topic = topic
        self.leader_epoch = partition.leader_epoch
        self._clock = clock
        self._began_ms = int(clock.monotonic() * 1000)
        self.mirror = PartitionMirror(
            partition.log, _last_batch(partition, topic), source_epoch, compacted=partition.log.config.compact
        )
        #: the broker of the source that leads the partition; -1 if there is none
        self.source_leader = -1
        self.bytes = 0
        #: the largest producer id of mirrored records that is known
        self.largest_producer_id = max(filter(_is_reserved, partition.log.producers.states), default=-1)
        #: the largest timestamp of the last batch; -1 if it is not known
        self.last_timestamp = -1
        #: the number of transactions that were aborted at the end
        self.aborted = 0
        self.is_closed = False
        #: whether producers of this cluster do not get the ids of mirrored records
        self.has_reserved = False
        #: the offset at which the log of the source started when the mirror began; None once it starts there
        self._start_due: int | None = None
        self._uncommitted: list[tuple[int, int]] = []
        #: of a returning topic
        self.comparison: Comparison | None = None
        self.apply(topic)

    @property
    def key(self) -> PartitionKey:
        """The partition as the source knows it."""
        return self.topic.source_id, self.partition.index

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic.source_topic, self.partition.index)

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads in the same epoch."""
        return self.partition.leading and self.partition.leader_epoch == self.leader_epoch

    @property
    def fetches(self) -> bool:
        """Whether the state of the topic lets the partition be fetched."""
        return self.topic.is_fetched

    @property
    def awaits_response(self) -> bool:
        """Whether the mirror stops with the next response that shows that it is complete."""
        return self.topic.state is MirrorState.PROMOTING and self.mirror.phase is not Phase.STOPPED

    @property
    def lag(self) -> int:
        """The records that the source has and this broker has not, as far as it knows; -1 if it does not."""
        end = self.mirror.source_end
        return -1 if end < 0 else max(0, end - self.partition.log.high_watermark)

    def lag_ms(self, now_ms: int) -> int:
        """For how long, at most, the source has had records that this broker lacks; -1 if that is not known.

        A mirror that has never had everything, and does not get on, may lack records since it began. Why: its
        broker may lead only since a change of leaders or a restart, while the source is gone.
        """
        if self.mirror.phase is Phase.STOPPED or (self.lag == 0 and self.mirror.phase is Phase.MIRRORING):
            return 0
        since = self.mirror.caught_up_ms
        if since < 0 and self.mirror.phase is not Phase.MIRRORING:
            since = self._began_ms
        return -1 if since < 0 else max(0, now_ms - since)

    def apply(self, topic: MirroredTopic) -> None:
        """Take over the state of the topic.

        In another promotion the mirror stops again. Why: this broker may not have seen the states between the
        two, in which the source took records.
        """
        if (topic.fence, topic.is_lifted) != (self.topic.fence, self.topic.is_lifted):
            self.mirror.stop_when_complete(False)
        self.topic = topic
        self.mirror.stop_when_complete(topic.state is MirrorState.PROMOTING, _NOT_KNOWN)
        self.mirror.compacted = self.partition.log.config.compact

    def complete_at(self, source_end: int) -> None:
        """The log of the source ends there: a promotion waits for all of it, committed or not."""
        self.mirror.stop_when_complete(self.topic.state is MirrorState.PROMOTING, source_end)

    # -- appends

    def _takes_more(self) -> bool:
        """Whether the followers keep up: what is not committed has a limit."""
        high_watermark = self.partition.log.high_watermark
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            del self._uncommitted[0]
        return sum(size for _, size in self._uncommitted) < _UNCOMMITTED_MAX

    def take(self, records: memoryview, offset: int, source_epoch: int) -> Iterator[None]:
        """Append the batches from `offset` on, in steps. Raises ApiError; what came before it stays."""
        partition = self.partition
        check_enough_replicas(partition)
        own = partition.log
        if own.log_start_offset == own.end_offset == 0 and offset > 0:
            # The log of the source may start within a batch.
            start_empty_log(partition, read_header(records).base_offset)
            self._start_due = offset
            offset = own.end_offset
        for chunk in _chunks(records, offset):
            yield
            if not self.is_led:
                return
            try:
                self._append(chunk, source_epoch)
            except CorruptMessage:
                # The sound batches before the damaged one are appended, so that it is the next to be fetched.
                for batch in _batches(chunk):
                    self._append(batch, source_epoch)
        self.settle()

    def _append(self, batches: memoryview, source_epoch: int) -> None:
        own = self.partition.log
        header = check_and_stamp(batches, own.end_offset, self.leader_epoch)
        assert header is not None, "a chunk has a batch"
        append_at_offsets(self.partition, batches)
        self.largest_producer_id = max(self.largest_producer_id, _largest_producer_id(batches))
        self.mirror.appended(LastBatch.of(header), source_epoch)
        self.bytes += len(batches)
        self.last_timestamp = header.max_timestamp
        self._uncommitted.append((own.end_offset, len(batches)))

    def settle(self) -> None:
        """Start the log where the source's did, once that is committed."""
        due, own = self._start_due, self.partition.log
        if due is not None and own.high_watermark >= due:
            self._start_due = None
            self.partition.advance_log_start(due)

    def follow_start(self, source_start: int) -> None:
        """Move the log start to the source's, as far as records are committed."""
        own = self.partition.log
        offset = min(source_start, own.high_watermark)
        if offset > own.explained_start:
            log.info("link_log_start", partition=self.partition.name, offset=offset)
            self.partition.advance_log_start(offset)

    # -- the plan of fetches

    @property
    def fenced(self) -> bool:
        return self.mirror.fenced

    @property
    def retry_at_ms(self) -> int:
        return self.mirror.retry_at_ms

    def next_fetch(self, now_ms: int) -> FetchPosition | None:
        if not self._takes_more():
            self.mirror.retry_at_ms = now_ms + _FOLLOWERS_MS
        return self.mirror.next_fetch(now_ms)

    # -- the end

    def close(self) -> None:
        """Abort the transactions that are open, so that readers of committed records go on."""
        producers = self.partition.log.producers
        for producer_id in list(producers.ongoing.values()):
            state = producers.states[producer_id]
            marker = Marker(producer_id, state.epoch, False, max(state.coordinator_epoch, 0), 0)
            append_marker(self.partition, marker, self._clock.now_ms())
            self.aborted += 1
        self.is_closed = True


def _last_batch(partition: Partition, topic: MirroredTopic) -> LastBatch | None:
    """The last batch of a log; None if it has none.

    The end of a returning log may be damaged, and is cut as it is: it has a batch then that no source has.
    """
    own = partition.log
    end = own.end_offset
    if end == own.log_start_offset:
        return None
    try:
        found = own.read(end - 1, 1, upper=end)
    except CorruptLog:
        if topic.state is not MirrorState.RETURNING:
            raise
        return LastBatch(end - 1, end - 1, -1, -1, -1, -1)
    if found is None:
        return None
    header = read_header(FileRange(found.file, found.position, HEADER_SIZE).read_unverified())
    return LastBatch.of(header)


def _is_reserved(producer_id: int) -> bool:
    """Whether an id is kept from producers of this cluster: damaged ids must not use up all of them."""
    return producer_id < _PRODUCER_IDS_MAX


def _largest_producer_id(batches: memoryview) -> int:
    ids = (read_header(batch).producer_id for batch in _batches(batches))
    return max(filter(_is_reserved, ids), default=-1)


def _batches(batches: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(batches):
        size = read_header(batches, position).size
        yield batches[position : position + size]
        position += size


def whole_batches(records: memoryview) -> Generator[None, None, memoryview]:
    """The records without the part of a batch that may be at their end, in steps of some batches."""
    position = count = 0
    while len(records) - position >= HEADER_SIZE:
        size = read_header(records, position).size
        if records[position + _MAGIC_POSITION] != MAGIC or size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {size} bytes, or of an old message format")
        if position + size > len(records):
            break
        position += size
        count += 1
        if not count % BATCHES_MAX:
            yield
    return records[:position]


def _chunks(records: memoryview, offset: int) -> Iterator[memoryview]:
    """The batches from `offset` on, in pieces that are appended at once."""
    start = position = count = 0
    while position < len(records):
        header = read_header(records, position)
        size = header.size
        if header.next_offset <= offset:
            start = position = position + size
            continue
        if count and (count == BATCHES_MAX or position + size - start > BYTES_MAX):
            yield records[start:position]
            start, count = position, 0
        position += size
        count += 1
    if count:
        yield records[start:position]
