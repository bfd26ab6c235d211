"""Overwrites damaged ranges of a replica with the bytes of a healthy replica.

The range is fetched from other replicas, like a consumer fetches. The fetched bytes are validated and
overwrite the damaged bytes in place. Leaders and followers are repaired in the same way. No replica leaves
the ISR, and healthy bytes are not rewritten. In a compacted log the bytes of another replica may differ in
size: see `compacted_repair`.

Invariant: a range counts as repaired only when all of it has been written and synced to disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment, sync_files
from penstock.broker.healing.transaction_repair import RepairedBytes, rebuild_transactions
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import PartitionImage
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, PenstockError
from penstock.ports import File
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.replication.digest import leading_batches
from penstock.storage.recovery_report import Corruption
from penstock.storage.scrub import repair_target, repaired
from penstock.storage.validation import check_replicated
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.apis.get_replica_log_info import (
    GET_REPLICA_LOG_INFO,
    GetReplicaLogInfoRequest,
    LogInfoTopic,
    PartitionLogInfo,
)

__all__ = [
    "PIECE_BYTES",
    "Outcome",
    "all_in_sync",
    "has_other_replicas",
    "leader_of",
    "log_repaired",
    "other_replicas",
    "others_in_sync",
    "read_replica",
    "repair_range",
    "replica_log_info",
    "try_each",
]

log = get_logger("scrubber")
#: the bytes that one step of scrubbing checks, and that one request fetches
PIECE_BYTES: Final = 1 << 20
#: the errors of a replica that does not have a range: its copy is damaged as well, or was deleted
_HAS_NOT: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE})


class Outcome(Enum):
    """The result of repairing a damaged range."""

    REPAIRED = "repaired"
    #: still damaged: a replica that may have the range is unreachable, or does not know that it is committed
    WAITS = "waits"
    #: no replica has the range
    LOST = "lost"


def others_in_sync(env: RepairEnvironment, partition: Partition) -> list[int]:
    """The other in-sync replicas of a partition, the leader first."""
    known = _known(env, partition)
    if known is None:
        return []
    others = {node: None for node in (known.leader, *known.isr) if node >= 0}
    others.pop(env.node_id, None)
    return list(others)


def all_in_sync(env: RepairEnvironment, partition: Partition) -> bool:
    """Whether all assigned replicas are in sync, so that no other replica may have a missing range."""
    known = _known(env, partition)
    return known is None or set(known.replicas) <= {env.node_id, *known.isr}


def _known(env: RepairEnvironment, partition: Partition) -> PartitionImage | None:
    topic = env.image.topics_by_id.get(partition.topic_id)
    return None if topic is None else topic.partitions.get(partition.index)


def has_other_replicas(env: RepairEnvironment, partition: Partition) -> bool:
    """Whether the metadata assigns the partition to other brokers, too."""
    known = _known(env, partition)
    return known is not None and len(known.replicas) > 1


def other_replicas(env: RepairEnvironment, partition: Partition) -> list[int]:
    """The other assigned replicas of a partition."""
    known = _known(env, partition)
    return [] if known is None else [node for node in known.replicas if node != env.node_id]


def leader_of(env: RepairEnvironment, partition: Partition) -> int:
    """The leader of a partition according to this broker's metadata; -1 if there is none."""
    known = _known(env, partition)
    return -1 if known is None else known.leader


async def _fetch_replica(
    env: RepairEnvironment, partition: Partition, offset: int, replica: int
) -> PartitionData:
    """The response of another replica to a Fetch from `offset` on, sent like a consumer's."""
    wanted = FetchPartition(partition=partition.index, fetch_offset=offset, partition_max_bytes=PIECE_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PIECE_BYTES,
        topics=[FetchTopic(topic_id=partition.topic_id, partitions=[wanted])],
    )
    timeout_s = env.config.replica_socket_timeout_ms / 1000
    response = await env.peer(replica, "repair").send(FETCH, request, timeout_s)
    ((answer,),) = [topic.partitions for topic in response.responses]
    return answer


async def replica_log_info(env: RepairEnvironment, partition: Partition, replica: int) -> PartitionLogInfo:
    """The offsets of another replica's log; ApiError if the broker cannot tell them."""
    topic = LogInfoTopic(topic_id=partition.topic_id, partitions=[partition.index])
    request = GetReplicaLogInfoRequest(topic_partitions=[topic])
    timeout_s = env.config.replica_socket_timeout_ms / 1000
    response = await env.peer(replica, "repair").send(GET_REPLICA_LOG_INFO, request, timeout_s)
    ((info,),) = [topic.partition_log_info for topic in response.topic_partition_log_info_list]
    if info.error_code:
        raise ApiError(ErrorCode(info.error_code))
    return info


async def read_replica(env: RepairEnvironment, partition: Partition, offset: int, replica: int) -> memoryview:
    """Committed bytes of another replica from `offset` on."""
    answer = await _fetch_replica(env, partition, offset, replica)
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    assert isinstance(answer.records, memoryview)
    if not answer.records:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the replica has not committed offset {offset} yet")
    return answer.records


async def repair_range(
    env: RepairEnvironment, partition: Partition, damage: Corruption, sources: Iterable[int]
) -> Outcome:
    """Replace a damaged range with the bytes of the first of `sources` that has them."""

    async def copy(replica: int) -> bool:
        if not await _copy(env, partition, damage, replica):
            return False
        log_repaired(env, partition, damage, replica)
        return True

    return await try_each(partition, sources, copy)


async def try_each(
    partition: Partition, sources: Iterable[int], copy: Callable[[int], Awaitable[bool]]
) -> Outcome:
    """Call `copy` with one replica after the other until one of them has the range.

    `copy` returns false if this replica cannot be repaired now, for example because its log was truncated.
    """
    outcome = Outcome.LOST
    for replica in sources:
        try:
            return Outcome.REPAIRED if await copy(replica) else Outcome.WAITS
        except PenstockError as e:
            log.warning("repair_failed", partition=partition.name, source=replica, error=str(e))
            if not isinstance(e, ApiError) or e.code not in _HAS_NOT:
                outcome = Outcome.WAITS
    return outcome


def log_repaired(env: RepairEnvironment, partition: Partition, damage: Corruption, replica: int) -> None:
    env.metrics.corruption_repaired += 1
    log.info(
        "corruption_repaired",
        partition=partition.name,
        source=replica,
        first_offset=damage.first_offset,
        next_offset=damage.next_offset,
        bytes=damage.size,
    )


async def _copy(env: RepairEnvironment, partition: Partition, damage: Corruption, replica: int) -> bool:
    """Overwrite the damaged range with a replica's bytes; False if it cannot be replaced in place."""
    opened, offset, position = partition.log, damage.first_offset, damage.position
    end = damage.position + damage.size
    file = _target(partition, damage)
    while file is not None and offset < damage.next_offset:
        # The log start offset may lie within a batch. Fetching that offset returns the complete batch.
        fetched = await read_replica(env, partition, max(offset, opened.log_start_offset), replica)
        batches, next_offset = _within(fetched, offset, damage)
        # The segment may have been truncated, compacted or deleted during the fetch.
        file = _target(partition, damage)
        if file is None:
            break
        if position + len(batches) > end:
            raise CorruptMessage(f"the replica's batches from {damage.first_offset} on are too large")
        try:
            file.pwrite(batches, position)
        except OSError as e:
            raise partition.health.failed(e, f"cannot repair {opened.path}") from e
        offset, position = next_offset, position + len(batches)
    if file is None:
        return False
    if position != end:
        raise CorruptMessage(f"the replica's batches from {damage.first_offset} on are too small")
    await sync_files(env, partition, [file])
    if _target(partition, damage) is None:
        return False
    async with partition.rewriting:
        written = RepairedBytes(damage.path, damage.position, end)
        await rebuild_transactions(env, partition, damage, [written], in_place=True)
    if _target(partition, damage) is None:
        return False
    try:
        indexes = repaired(opened, damage)
    except OSError as e:
        raise partition.health.failed(e, f"cannot index {opened.path}") from e
    await sync_files(env, partition, indexes)
    return True


def _target(partition: Partition, damage: Corruption) -> File | None:
    return repair_target(partition.log, damage) if partition.is_online else None


def _within(fetched: memoryview, offset: int, damage: Corruption) -> tuple[memoryview, int]:
    """The complete, valid, consecutive batches of a damaged range from `offset` on, and the next offset."""
    size, _ = leading_batches(fetched, damage.next_offset)
    batches = fetched[:size]
    for header in check_replicated(batches):
        if header[BASE_OFFSET] != offset:
            raise CorruptMessage(f"a batch at offset {header[BASE_OFFSET]} where {offset} should be")
        offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    if not batches or offset > damage.next_offset:
        raise CorruptMessage(f"the replica has no batches that end at offset {damage.next_offset}")
    return batches, offset
