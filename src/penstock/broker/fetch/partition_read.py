"""The fetch of a client from one partition: what may be read, and the answer.

Bytes leave as file ranges that go to the socket unread. A consumer reads up to the high watermark, or up to
the last stable offset if it reads committed records only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.fetch.pipeline import SMALL_RANGE, newest_within
from penstock.broker.fetch.sessions import WantedPartition
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, OffsetOutOfRange
from penstock.replication.leader import LeaderState
from penstock.storage.log import Log
from penstock.wire.apis.fetch import AbortedTransaction, EpochEndOffset, PartitionData

__all__ = ["QUIET", "FetchLimits", "described", "failed", "read_partition"]

#: stands for an answer that is not built yet
QUIET: Final = PartitionData()


class FetchLimits(NamedTuple):
    max_bytes: int
    #: read committed records only, up to the last stable offset
    committed: bool
    #: true if only a leader may answer: clients that know of racks may read from followers (KIP-392)
    only_leader: bool = True
    #: finds the replica that a client at an offset should rather read from, if any
    nearest: Callable[[LeaderState, int], int | None] | None = None


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
    if partition.health.offline is not None:
        partition.health.check()
    log = partition.log
    if want.last_fetched_epoch >= 0:
        epoch, end = partition.end_offset_for_epoch(want.last_fetched_epoch)
        if end < 0:
            raise OffsetOutOfRange
        if epoch < want.last_fetched_epoch or end < want.fetch_offset:
            return _diverging(partition, want.index, epoch, end)
    if nearest is not None and partition.leader_state is not None:
        replica = nearest(partition.leader_state, want.fetch_offset)
        if replica is not None:
            return _redirected(partition, want.index, replica)
    upper = partition.readable_end(committed)
    if may_wait and want.fetch_offset == upper:
        return QUIET
    answer = described(partition, want.index)
    newest = newest_within(log, want.fetch_offset, upper, None if at_least_one else min(left, want.max_bytes))
    if newest is not None:
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
                raise partition.read_failed(e, found) from e
    elif not log.log_start_offset <= want.fetch_offset <= log.end_offset:
        raise OffsetOutOfRange
    if committed:
        # Like Kafka, a response without records lists no transactions.
        answer.aborted_transactions = _aborted(log, want.fetch_offset, upper) if answer.records else []
    return answer


def _diverging(partition: Partition, index: int, epoch: int, end_offset: int) -> PartitionData:
    """The answer to a client whose last epoch ends at `end_offset` in this log: it has to truncate."""
    answer = described(partition, index)
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer


def _redirected(partition: Partition, index: int, replica: int) -> PartitionData:
    """The answer to a client that is to fetch from a replica in its rack (KIP-392)."""
    answer = described(partition, index)
    answer.preferred_read_replica = replica
    return answer


def _aborted(log: Log, start: int, upper: int) -> list[AbortedTransaction]:
    """The aborted transactions in a range; ColdPages if their index has to be read from the disk."""
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first)
        for producer_id, first in log.aborted_transactions(start, upper, cached_only=True)
    ]


def described(partition: Partition, index: int) -> PartitionData:
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


def failed(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
