"""DescribeLogDirs and AlterReplicaLogDirs.

A replica stays in the directory that it was created in, so AlterReplicaLogDirs succeeds only for replicas
that are in the requested directory already. To empty a disk, move its replicas to another broker with
AlterPartitionReassignments.
"""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.ports import Clock
from penstock.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    FollowerLag,
)

__all__ = ["LogDirHandlers"]


class LogDirHandlers:
    """DescribeLogDirs and AlterReplicaLogDirs."""

    def __init__(self, partitions: Partitions, node: ClusterNode, clock: Clock) -> None:
        self._partitions = partitions
        self._node = node
        self._clock = clock

    def describe_log_dirs(self, context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        partitions = self._partitions
        wanted = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        suspended = self._node.clock_watch.suspended
        now_ms = int(self._clock.monotonic() * 1000)
        response = DescribeLogDirsResponse(
            deletion_suspended=suspended or "", metadata_diverged=self._node.image_check.diverged or ""
        )
        for directory in partitions.directories:
            result = DescribeLogDirsResult(log_dir=directory.path)
            response.results.append(result)
            if directory.health.offline is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            topics: dict[str, DescribeLogDirsTopic] = {}
            for partition in partitions.in_directory(directory):
                if wanted is not None and (partition.topic, partition.index) not in wanted:
                    continue
                topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=partition.index,
                        partition_size=partition.log.size,
                        offset_lag=partition.lag,
                        damaged_ranges=len(partition.log.recovery.corruption),
                        follower_lags=_follower_lags(partition, now_ms),
                    )
                )
            result.topics = list(topics.values())
            result.is_full = directory.health.full is not None
            result.quarantined_bytes = directory.quarantine.size
            result.total_bytes, result.usable_bytes = directory.space()
        response.results += [
            DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            for path in partitions.data.missing
        ]
        return response

    def alter_replica_log_dirs(
        self, context: Context, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        partitions = self._partitions
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
                result.partitions += [
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=_answer(partitions, directory.path, topic.name, index),
                    )
                    for index in topic.partitions
                ]
        return AlterReplicaLogDirsResponse(results=list(results.values()))


def _follower_lags(partition: Partition, now_ms: int) -> list[FollowerLag]:
    """The lag of each follower; empty unless this broker leads the partition."""
    if partition.leadership is None:
        return []
    end, start = partition.log.end_offset, partition.log.log_start_offset
    followers = partition.leadership.state.followers
    lags = {broker: progress.lag(end, start, now_ms) for broker, progress in followers.items()}
    return [
        FollowerLag(broker_id=broker, records=records, milliseconds=late_ms)
        for broker, (records, late_ms) in sorted(lags.items())
    ]


def _answer(partitions: Partitions, path: str, topic: str, index: int) -> ErrorCode:
    if path in partitions.data.missing:
        return ErrorCode.KAFKA_STORAGE_ERROR
    wanted = next((directory for directory in partitions.directories if directory.path == path), None)
    if wanted is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    slot = partitions.find(topic, index)
    if isinstance(slot, ErrorCode):
        # Kafka's error for a replica on another broker, in this response only.
        return ErrorCode.REPLICA_NOT_AVAILABLE if slot is ErrorCode.NOT_LEADER_OR_FOLLOWER else slot
    if any(directory.health.offline is not None for directory in (wanted, slot.directory)):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE if slot.directory is wanted else ErrorCode.INVALID_REPLICA_ASSIGNMENT
