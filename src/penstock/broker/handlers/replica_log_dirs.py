"""AlterReplicaLogDirs: succeeds only for replicas that are in the requested directory already.

A replica stays in the directory that it was created in. To empty a disk, move its replicas to another broker
with AlterPartitionReassignments.
"""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

__all__ = ["ReplicaLogDirHandlers"]


class ReplicaLogDirHandlers:
    """AlterReplicaLogDirs."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

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
