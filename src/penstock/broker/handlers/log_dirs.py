"""DescribeLogDirs and AlterReplicaLogDirs.

AlterReplicaLogDirs begins moves of replicas (`broker/replica/directory_moves.py`), and does not wait for
their end. DescribeLogDirs has a replica that is being moved twice: in the new directory as a future replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.links.runtime import Links
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.node.image_check import ImageCheck
from penstock.broker.replica.cordoned_directories import cordoned
from penstock.broker.replica.directory_moves import DirectoryMoves, FutureReplica
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, StorageError
from penstock.net.deferred import Deferred
from penstock.observability.health import Finding
from penstock.observability.health_wire import fields_of
from penstock.ports import Clock, Space
from penstock.storage.directory import DataDirectory
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

log = get_logger("log_dirs")
#: the longest name of a topic
_NAME_MAX: Final = 249
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
        moves: DirectoryMoves,
    ) -> None:
        """`health` computes the findings of this broker about its health, for clients that request them."""
        self._partitions = partitions
        self._health = health
        self._clock_watch = clock_watch
        self._image_check = image_check
        self._clock = clock
        self._links = links
        self._config = config
        self._moves = moves

    def describe_log_dirs(
        self, context: Context, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse | Deferred[DescribeLogDirsResponse]:
        return context.in_turns(self._described(request))

    def _described(self, request: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResponse]:
        partitions = self._partitions
        names = _requested(request)
        # Looked up one by one: a large request comes in many parts, and a broker has many partitions.
        wanted = None if names is None else [partitions.find(*name) for name in names]
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
            yield from self._add_futures(directory, names, topics)
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

    def _add_futures(
        self,
        directory: DataDirectory,
        names: Container[tuple[str, int]] | None,
        topics: dict[str, DescribeLogDirsTopic],
    ) -> Iterator[None]:
        """Add the replicas that are being moved to a directory; of all partitions, or of those in `names`.

        A replica that is about to be exchanged is still in its old directory.
        """
        now_ms = int(self._clock.monotonic() * 1000)
        for number, future in enumerate(list(self._moves)):
            if not number % _STEP:
                yield
            if names is not None and (future.topic, future.index) not in names:
                continue
            left, found = future.leaving, []
            if left is not None and left.directory is directory:
                found.append(_described_partition(left, now_ms, None))
            if future.target is directory:
                found.append(self._described_future(future))
            if found:
                topic = topics.setdefault(future.topic, DescribeLogDirsTopic(name=future.topic))
                topic.partitions += found

    def _described_future(self, future: FutureReplica) -> DescribeLogDirsPartition:
        """A replica that is being moved, with its lag behind the log in use; -1 if that is offline."""
        slot = future.leaving or self._partitions.find(future.topic_id, future.index)
        lag = slot.log.end_offset - future.copy.end_offset if isinstance(slot, Partition) else -1
        return DescribeLogDirsPartition(
            partition_index=future.index, partition_size=future.copy.size, offset_lag=lag, is_future_key=True
        )

    def alter_replica_log_dirs(
        self, context: Context, request: AlterReplicaLogDirsRequest
    ) -> Deferred[AlterReplicaLogDirsResponse]:
        return context.spawn(self._altered(request))

    async def _altered(self, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        # Like Kafka: of a replica that is named twice, the last directory counts.
        wanted = {
            (topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for number, ((name, index), path) in enumerate(wanted.items()):
            if not number % _STEP:
                await asyncio.sleep(0)
            result = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
            code = await self._move(name, index, path)
            result.partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    async def _move(self, topic: str, index: int, path: str) -> ErrorCode:
        """Begin a move, with the checks in Kafka's order."""
        partitions = self._partitions
        if path in partitions.data.missing:
            return ErrorCode.KAFKA_STORAGE_ERROR
        target = next((directory for directory in partitions.directories if directory.path == path), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if target.health.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if target in cordoned(self._config, [target]):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        slot = partitions.find(topic, index)
        if slot is ErrorCode.KAFKA_STORAGE_ERROR:
            return slot
        if isinstance(slot, ErrorCode):
            # The replica may come later.
            if len(topic) <= _NAME_MAX:
                partitions.prefer(topic, index, target)
            # Kafka's error for a replica on another broker, in this response only.
            return ErrorCode.REPLICA_NOT_AVAILABLE if slot is ErrorCode.NOT_LEADER_OR_FOLLOWER else slot
        if slot.health.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            await self._moves.request(slot, target)
        except StorageError as e:
            log.error("replica_move_refused", partition=slot.name, to=path, error=str(e))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


def _requested(request: DescribeLogDirsRequest) -> dict[tuple[str, int], None] | None:
    """The requested partitions in their order; None for all of them."""
    if request.topics is None:
        return None
    return {(topic.topic, index): None for topic in request.topics for index in topic.partitions}


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
