"""DescribeLogDirs: the replicas in each data directory, and its free space."""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

__all__ = ["LogDirHandlers"]


class LogDirHandlers:
    """DescribeLogDirs."""

    def __init__(self, partitions: Partitions, node: ClusterNode) -> None:
        self._partitions = partitions
        self._node = node

    def describe_log_dirs(self, context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        partitions = self._partitions
        wanted = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        suspended = self._node.clock_watch.suspended
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
                        offset_lag=0,
                        damaged_ranges=len(partition.log.recovery.corruption),
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
