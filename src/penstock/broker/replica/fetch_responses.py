"""What a leader's answer means for a follower's log, carried out."""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.replication.epochs import EpochEnd
from penstock.replication.follower import FetchAnswer, Reset, Step, Truncate
from penstock.wire.apis.fetch import FetchResponse, PartitionData
from penstock.wire.schema import Records

__all__ = ["cut", "told_by"]

log = get_logger("replica_fetcher")


def cut(partition: Partition, step: Step) -> None:
    """Cut it, where it is not what the leader has."""
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


def told_by(response: FetchResponse) -> list[tuple[TopicId, int, FetchAnswer, Records | None]]:
    return [
        (TopicId(topic.topic_id), data.partition_index, _answer(data), data.records)
        for topic in response.responses
        for data in topic.partitions
    ]


def _answer(data: PartitionData) -> FetchAnswer:
    parted = data.diverging_epoch
    return FetchAnswer(
        ErrorCode(data.error_code) if data.error_code else ErrorCode.NONE,
        data.high_watermark,
        data.log_start_offset,
        None if parted is None else EpochEnd(parted.epoch, parted.end_offset),
    )
