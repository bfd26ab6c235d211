"""Reading for Fetch: which bytes of which partitions, now or when there are enough of them.

Bytes leave as file ranges that go to the socket unread. A range that is not in the page cache would make the
event loop wait for the disk, so a worker thread warms it first. A fetch that finds too little waits as a
plain object on its partitions: no task, one timer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.fetch.sessions import WantedPartition
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.net.server import Server
from penstock.replication.leader import LeaderState
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import AbortedTransaction, EpochEndOffset, PartitionData

if TYPE_CHECKING:
    from penstock.broker.replica.partitions import Partitions

__all__ = [
    "FetchLimits",
    "FetchRead",
    "WaitingFetch",
    "available_bytes",
    "read_partition",
    "read_partitions",
]

#: a range up to this size is copied: that is cheaper than the system calls of sending a file
SMALL_RANGE: Final = 24 << 10
_NOT_HERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchLimits(NamedTuple):
    max_bytes: int
    #: read committed data only, up to the last stable offset
    committed: bool
    #: whether only a leader will do: clients that know of racks may read from followers (KIP-392)
    only_leader: bool = True
    #: the replica that a client at an offset should rather read from, if any
    nearest: Callable[[LeaderState, int], int | None] | None = None


class FetchRead:
    """What one pass over the wanted partitions found."""

    __slots__ = ("answers", "cold", "errors", "has_news", "quiet", "size")

    def __init__(self) -> None:
        self.answers: list[PartitionData] = []
        #: where in `answers` partitions stand that are read to their end, see `tell_quiet`
        self.quiet: list[tuple[int, Partition]] = []
        self.size = 0
        self.errors = 0
        #: something that the client should hear of at once: an error or a divergence
        self.has_news = False
        #: what has to be warmed before its partitions can be read
        self.cold: list[tuple[Partition, ColdPages]] = []

    def tell_quiet(self, committed: bool) -> None:
        """Make the answers that were left out, because most fetches wait instead of sending them."""
        for position, partition in self.quiet:
            answer = self.answers[position] = _described(partition, partition.index)
            if committed:
                answer.aborted_transactions = []
        self.quiet = []


def read_partitions(
    partitions: Partitions, wanted: Sequence[WantedPartition], limits: FetchLimits, *, may_wait: bool = False
) -> FetchRead:
    """Read every wanted partition in order, within `limits`, but at least one batch of the first with any.

    With `may_wait`, those that are read to their end are `quiet`, and their answers are left out for now.
    """
    read = FetchRead()
    left = limits.max_bytes
    for want in wanted:
        partition = partitions.find(want.topic, want.index)
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
            left = max(0, left - size)
        if answer.error_code:
            read.errors += 1
            # Like Kafka, a partition that is not here does not keep others from being waited for: a client
            # that asks for it again and again, with others that are idle, would spin.
            read.has_news |= partition not in _NOT_HERE
        elif answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
            read.has_news = True
        read.answers.append(answer)
    return read


def available_bytes(partitions: Partitions, wanted: Sequence[WantedPartition], committed: bool) -> int | None:
    """How much the wanted partitions have, up to the limit of each; None if one has a lot (`bytes_between`).

    Like Kafka, a fetch waits for more only if this is less than its minimum. What was read may be less still,
    because batches are not cut and because of the limit of the whole fetch: waiting would not bring more.
    """
    size = 0
    for want in wanted:
        partition = partitions.find(want.topic, want.index)
        if isinstance(partition, ErrorCode):
            continue
        available = partition.log.bytes_between(want.fetch_offset, partition.readable_end(committed))
        if available is None:
            return None
        size += min(available, want.max_bytes)
    return size


#: stands for an answer that is not made yet
_QUIET: Final = PartitionData()


def read_partition(
    partition: Partition,
    want: WantedPartition,
    left: int,
    limits: FetchLimits,
    at_least_one: bool,
    may_wait: bool = False,
) -> PartitionData:
    """What to answer of one partition, with up to `left` bytes of it; ApiError, or ColdPages to be warmed."""
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
            answer = _described(partition, want.index)
            answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
            return answer
    if nearest is not None and partition.leadership is not None:
        replica = nearest(partition.leadership.state, want.fetch_offset)
        if replica is not None:
            answer = _described(partition, want.index)
            answer.preferred_read_replica = replica
            return answer
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
        # Those of nothing are none, as with Kafka.
        aborted = (
            log.aborted_transactions(want.fetch_offset, upper, cached_only=True) if answer.records else ()
        )
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in aborted
        ]
    return answer


def _described(partition: Partition, index: int) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        # Only readers of committed records are told of any.
        aborted_transactions=None,
        records=b"",
    )


def _failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")


class WaitingFetch:
    """A fetch that waits for `min_bytes`, or for its time to be up, and then calls `complete` once."""

    __slots__ = ("_complete", "_done", "_missing", "_partitions", "_server", "_timer")

    def __init__(
        self,
        server: Server,
        partitions: Sequence[Partition],
        missing: int,
        max_wait_s: float,
        complete: Callable[[], None],
    ) -> None:
        self._server = server
        self._partitions = partitions
        self._missing = missing
        self._complete = complete
        self._done = False
        self._timer = server.loop.call_later(max_wait_s, self._finish)
        for partition in partitions:
            partition.waiters[self] = None

    def more(self, size: int) -> None:
        """One of the partitions grew; finish with all that came together, before those who sent it hear."""
        if self._missing > 0:
            self._missing -= size
            if self._missing <= 0:
                self._server.call_soon(self._finish)

    def cancel(self) -> None:
        self._done = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.pop(self, None)

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            try:
                self._complete()
            finally:
                # When the answer is on its way already: nothing can come in between.
                self.cancel()
