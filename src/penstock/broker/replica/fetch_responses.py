"""The responses to a replica fetcher's requests, and the steps that they lead to."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.links import ClusterLinks
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.replication.epochs import EpochEnd
from penstock.replication.fetch_plan import PartitionKey
from penstock.replication.follower import FetchAnswer, FollowerState, Reset, SetAside, Step, Truncate
from penstock.wire.apis.fetch import FetchResponse, PartitionData
from penstock.wire.replica_fetch import FetchedPartition

__all__ = ["SplitResponse", "check_reset", "cut_log", "split_response"]

log = get_logger("replica_fetcher")


class SplitResponse(NamedTuple):
    """The partitions of a response: those to advance, and those with an error or a divergence."""

    fetched: list[FetchedPartition]
    refused: list[tuple[PartitionKey, FetchAnswer]]


def split_response(response: FetchResponse) -> SplitResponse:
    split = SplitResponse([], [])
    for topic in response.responses:
        topic_id = TopicId(topic.topic_id)
        for data in topic.partitions:
            index = data.partition_index
            if data.error_code or data.diverging_epoch is not None:
                split.refused.append(((topic_id, index), _answer(data)))
            else:
                records = data.records or b""
                split.fetched.append((topic_id, index, data.high_watermark, data.log_start_offset, records))
    return split


def _answer(data: PartitionData) -> FetchAnswer:
    diverging = data.diverging_epoch
    return FetchAnswer(
        ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE,
        data.high_watermark,
        data.log_start_offset,
        None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
    )


def check_reset(
    partition: Partition, state: FollowerState, step: Reset, cluster: ClusterLinks, now_ms: int
) -> Step:
    """Set a log aside instead of a reset if its own retention would keep some of its records.

    Why: the leader may have lost its first segments. Without a trusted clock no record is known to be
    expired. Before the first comparison of the clock, which comes with a heartbeat, the follower waits.
    """
    trusted_ms = cluster.trusted_ms()
    if not partition.log.retention.has_unexpired(trusted_ms):
        return step
    if trusted_ms is None and not cluster.clock_compared():
        return state.failed(now_ms)
    return SetAside(step.offset)


def cut_log(partition: Partition, step: Step) -> None:
    """Cut the log where it differs from the leader's, if `step` says so."""
    if isinstance(step, Truncate):
        report = log.info if step.committed_lost is False else log.error
        report(
            "replica_truncated",
            partition=partition.name,
            offset=step.offset,
            end_offset=partition.log.end_offset,
            high_watermark=partition.log.high_watermark,
            committed_lost="unknown" if step.committed_lost is None else step.committed_lost,
        )
        partition.log.truncate_to(step.offset)
    elif isinstance(step, Reset):
        log.info("replica_reset", partition=partition.name, offset=step.offset)
        partition.log.reset_to(step.offset)
