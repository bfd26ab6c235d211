"""DescribeLogDirs and AlterReplicaLogDirs.

A replica stays in the directory that it was created in, so AlterReplicaLogDirs succeeds only for replicas
that are in the requested directory already. To empty a disk, move its replicas to another broker with
AlterPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.links.runtime import Links
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.node.image_check import ImageCheck
from penstock.broker.replica.cordoned_directories import cordoned
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.net.deferred import Deferred
from penstock.observability.health import Finding
from penstock.observability.health_wire import fields_of
from penstock.ports import Clock, Space
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
    MirroredLog,
)

__all__ = ["LogDirHandlers"]

#: partitions between two yields
_STEP: Final = 64
#: gets the (total, free) bytes of the volume of each data directory
HealthSteps: TypeAlias = Callable[[Mapping[str, Space]], Generator[None, None, Sequence[Finding]]]


class LogDirHandlers:
    """DescribeLogDirs and AlterReplicaLogDirs."""

    def __init__(
        self,
        partitions: Partitions,
        clock_watch: ClockWatch,
        image_check: ImageCheck,
        clock: Clock,
        health: HealthSteps,
        links: Links,
        config: BrokerConfig,
    ) -> None:
        """`health` computes the findings of this broker about its health, for clients that request them."""
        self._partitions = partitions
        self._health = health
        self._clock_watch = clock_watch
        self._image_check = image_check
        self._clock = clock
        self._links = links
        self._config = config

    def describe_log_dirs(
        self, context: Context, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse | Deferred[DescribeLogDirsResponse]:
        return context.in_turns(self._described(request))

    def _described(self, request: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResponse]:
        partitions = self._partitions
        wanted = None
        if request.topics is not None:
            # Looked up one by one: a large request comes in many parts, and a broker has many partitions.
            names = {(topic.topic, index): None for topic in request.topics for index in topic.partitions}
            wanted = [partitions.find(*name) for name in names]
        now_ms = int(self._clock.monotonic() * 1000)
        response = self._of_broker()
        closed = cordoned(self._config, partitions.directories)
        for directory in partitions.directories:
            result = DescribeLogDirsResult(log_dir=directory.path)
            result.is_cordoned = directory in closed
            response.results.append(result)
            if directory.health.offline is not None:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if wanted is None:
                # Listed, because partitions may come and go between two slices.
                found = list(partitions.in_directory(directory))
            else:
                found = [p for p in wanted if isinstance(p, Partition) and p.directory is directory]
            topics: dict[str, DescribeLogDirsTopic] = {}
            for number, partition in enumerate(found):
                if not number % _STEP:
                    yield
                topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
                mirror = self._links.described(partition, now_ms)
                topic.partitions.append(_described_partition(partition, now_ms, mirror))
            result.topics = list(topics.values())
            result.is_full = directory.health.full is not None
            result.quarantined_bytes = directory.quarantine.size
            result.total_bytes, result.usable_bytes, result.reserved_bytes = directory.space()
        response.results += [
            DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
            for path in partitions.data.missing
        ]
        if request.include_health:
            space = {
                each.log_dir: Space(each.total_bytes, each.usable_bytes, each.reserved_bytes)
                for each in response.results
                if each.total_bytes >= 0
            }
            response.health = fields_of((yield from self._health(space)))
            response.reports_health = True
        return response

    def _of_broker(self) -> DescribeLogDirsResponse:
        """The response without directories and health."""
        doubt = self._clock_watch.doubt
        return DescribeLogDirsResponse(
            deletion_suspended="" if doubt is None else str(doubt),
            metadata_diverged=self._image_check.diverged or "",
            clock_ms=self._clock.now_ms(),
            links=self._links.reports(),
        )

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


def _described_partition(
    partition: Partition, now_ms: int, mirror: MirroredLog | None
) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size,
        offset_lag=partition.lag,
        damaged_ranges=len(partition.log.recovery.corruption),
        follower_lags=_follower_lags(partition, now_ms),
        mirror=mirror,
    )


def _follower_lags(partition: Partition, now_ms: int) -> list[FollowerLag]:
    """The lag of each follower; empty unless this broker leads the partition."""
    if partition.leader_state is None:
        return []
    end, start = partition.log.end_offset, partition.log.log_start_offset
    followers = partition.leader_state.followers
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
