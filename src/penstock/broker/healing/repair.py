"""Damaged ranges of a replica, written over with the bytes of a healthy one.

Other replicas are asked for the range as any reader asks. Their bytes are checked and written over the
damaged ones, in place. That is the same for leaders and followers, takes nobody out of the ISR, and costs
nothing that is healthy. Where a log is compacted the bytes of another need not fit: see `compacted_repair`.

Invariant: a range counts as sound again only when all of it has been written and is on the disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import PartitionImage
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, PenstockError
from penstock.ports import File
from penstock.replication.digest import leading_batches
from penstock.storage.recovery import Corruption
from penstock.storage.scrub import repair_target, repaired
from penstock.storage.validation import check_replicated
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData

__all__ = [
    "PIECE_BYTES",
    "Outcome",
    "all_in_sync",
    "fetch_replica",
    "has_other_replicas",
    "is_here",
    "leader_of",
    "log_repaired",
    "others_in_sync",
    "read_replica",
    "repair_range",
    "try_each",
]

log = get_logger("scrubber")
#: what is checked in one go, and fetched with one request
PIECE_BYTES: Final = 1 << 20
#: what a replica answers that does not have a range: its copy is damaged as well, or was let go of
_HAS_NOT: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE})


class Outcome(Enum):
    """What became of a damaged range."""

    MENDED = "mended"
    #: it stays damaged for now: who may have it is away, or it is not known to be committed yet
    WAITS = "waits"
    #: everybody was asked, and nobody has it
    LOST = "lost"


def is_here(partition: Partition) -> bool:
    """Whether what was found out about a replica still means something."""
    return partition.hosted and partition.directory.health.offline is None


def others_in_sync(env: RepairEnvironment, partition: Partition) -> list[int]:
    """Who else has all of a partition: the leader first."""
    known = _known(env, partition)
    if known is None:
        return []
    others = {node: None for node in (known.leader, *known.isr) if node >= 0}
    others.pop(env.node_id, None)
    return list(others)


def all_in_sync(env: RepairEnvironment, partition: Partition) -> bool:
    """Whether nobody is away who may have what those in sync do not have."""
    known = _known(env, partition)
    return known is None or set(known.replicas) <= {env.node_id, *known.isr}


def _known(env: RepairEnvironment, partition: Partition) -> PartitionImage | None:
    topic = env.image.topics_by_id.get(partition.topic_id)
    return None if topic is None else topic.partitions.get(partition.index)


def has_other_replicas(env: RepairEnvironment, partition: Partition) -> bool:
    """Whether the metadata assigns the partition to other brokers, too."""
    known = _known(env, partition)
    return known is not None and len(known.replicas) > 1


def leader_of(env: RepairEnvironment, partition: Partition) -> int:
    """The broker that leads a partition, going by the metadata here; -1 if none does."""
    known = _known(env, partition)
    return -1 if known is None else known.leader


async def fetch_replica(
    env: RepairEnvironment, partition: Partition, offset: int, replica: int
) -> PartitionData:
    """What another replica answers to a Fetch from `offset` on, as any reader sends it."""
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


async def read_replica(env: RepairEnvironment, partition: Partition, offset: int, replica: int) -> memoryview:
    """Committed bytes of another replica from `offset` on, as any reader gets them."""
    answer = await fetch_replica(env, partition, offset, replica)
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    assert isinstance(answer.records, memoryview)
    if not answer.records:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"it has not heard that offset {offset} is committed")
    return answer.records


async def repair_range(
    env: RepairEnvironment, partition: Partition, damage: Corruption, sources: Iterable[int]
) -> Outcome:
    """Replace a damaged range with what the first of `sources` has that can give it."""

    async def copy(replica: int) -> bool:
        if not await _copy(env, partition, damage, replica):
            return False
        log_repaired(env, partition, damage, replica)
        return True

    return await try_each(partition, sources, copy)


async def try_each(
    partition: Partition, sources: Iterable[int], copy: Callable[[int], Awaitable[bool]]
) -> Outcome:
    """`copy` from one replica after the other until one gives what is asked for.

    False of `copy` means that ours is no longer, or not yet, what another's could replace.
    """
    outcome = Outcome.LOST
    for replica in sources:
        try:
            return Outcome.MENDED if await copy(replica) else Outcome.WAITS
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
    """Write a replica's bytes over ours; False if ours cannot be replaced in place."""
    opened, offset, position = partition.log, damage.first_offset, damage.position
    end = damage.position + damage.size
    file = _target(partition, damage)
    while file is not None and offset < damage.next_offset:
        # The batch that the log begins within lies there whole, and is found by what is left of it.
        fetched = await read_replica(env, partition, max(offset, opened.log_start_offset), replica)
        batches, next_offset = _within(fetched, offset, damage)
        # It may have been cut, compacted or let go of while we waited.
        file = _target(partition, damage)
        if file is None:
            break
        if position + len(batches) > end:
            raise CorruptMessage(f"its batches from {damage.first_offset} on take more room than ours")
        try:
            file.pwrite(batches, position)
        except OSError as e:
            raise partition.flusher.health.failed(e, f"cannot repair {opened.path}") from e
        offset, position = next_offset, position + len(batches)
    if file is None:
        return False
    if position != end:
        raise CorruptMessage(f"its batches from {damage.first_offset} on take less room than ours")
    await _sync(env, partition, [file])
    if _target(partition, damage) is None:
        return False
    try:
        indexes = repaired(opened, damage)
    except OSError as e:
        raise partition.flusher.health.failed(e, f"cannot index {opened.path}") from e
    await _sync(env, partition, indexes)
    return True


async def _sync(env: RepairEnvironment, partition: Partition, files: Iterable[File]) -> None:
    for file in files:
        try:
            await env.workers.in_thread(file.sync)
        except OSError as e:
            raise partition.flusher.health.sync_failed(e, f"cannot sync {file.path}") from e


def _target(partition: Partition, damage: Corruption) -> File | None:
    return repair_target(partition.log, damage) if is_here(partition) else None


def _within(fetched: memoryview, offset: int, damage: Corruption) -> tuple[memoryview, int]:
    """The whole, sound batches in a damaged range that follow each other from `offset` on, and their end."""
    size, _ = leading_batches(fetched, damage.next_offset)
    batches = fetched[:size]
    for header in check_replicated(batches):
        if header[0] != offset:
            raise CorruptMessage(f"a batch at offset {header[0]} where {offset} should be")
        offset = header[0] + header[6] + 1
    if not batches or offset > damage.next_offset:
        raise CorruptMessage(f"no batches that end at {damage.next_offset}, as ours do")
    return batches, offset
