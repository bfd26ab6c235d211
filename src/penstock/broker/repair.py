"""Damaged ranges of a replica, written over with the bytes of a healthy one.

Other replicas are asked for the range as any reader asks. Their bytes are checked and written over the
damaged ones, in place. That is the same for leaders and followers, takes nobody out of the ISR, and costs
nothing that is healthy.

Invariant: a range counts as sound again only when all of it has been written and is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, PenstockError
from penstock.ports import File
from penstock.replication.digest import leading_batches
from penstock.storage.recovery import Corruption
from penstock.storage.scrub import repair_target, repaired
from penstock.storage.validation import check_replicated
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

__all__ = ["PIECE_BYTES", "is_here", "others_in_sync", "read_replica", "repair_range"]

log = get_logger("scrubber")
#: what is checked in one go, and fetched with one request
PIECE_BYTES: Final = 1 << 20


def is_here(partition: Partition) -> bool:
    """Whether what was found out about a replica still means something."""
    return partition.hosted and partition.directory.health.offline is None


def others_in_sync(broker: Broker, partition: Partition) -> list[int]:
    """Who else has all of a partition: the leader first."""
    topic = broker.image.topics_by_id.get(partition.topic_id)
    if topic is None or partition.index not in topic.partitions:
        return []
    known = topic.partitions[partition.index]
    others = {node: None for node in (known.leader, *known.isr) if node >= 0}
    others.pop(broker.node_id, None)
    return list(others)


async def read_replica(broker: Broker, partition: Partition, offset: int, replica: int) -> memoryview:
    """Committed bytes of another replica from `offset` on, as any reader gets them."""
    wanted = FetchPartition(partition=partition.index, fetch_offset=offset, partition_max_bytes=PIECE_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PIECE_BYTES,
        topics=[FetchTopic(topic_id=partition.topic_id, partitions=[wanted])],
    )
    timeout_s = broker.config.replica_socket_timeout_ms / 1000
    response = await broker.peer(replica, "repair").send(FETCH, request, timeout_s)
    ((answer,),) = [topic.partitions for topic in response.responses]
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    assert isinstance(answer.records, memoryview)
    return answer.records


async def repair_range(
    broker: Broker, partition: Partition, damage: Corruption, sources: Iterable[int]
) -> None:
    """Replace a damaged range with what the first of `sources` has that can give it."""
    for replica in sources:
        try:
            done = await _copy(broker, partition, damage, replica)
        except PenstockError as e:
            log.warning("repair_failed", partition=partition.name, source=replica, error=str(e))
            continue
        if done:
            broker.metrics.corruption_repaired += 1
            log.info(
                "corruption_repaired",
                partition=partition.name,
                source=replica,
                first_offset=damage.first_offset,
                next_offset=damage.next_offset,
                bytes=damage.size,
            )
            return


async def _copy(broker: Broker, partition: Partition, damage: Corruption, replica: int) -> bool:
    """Write a replica's bytes over ours; False if ours cannot be replaced in place."""
    opened, offset, position = partition.log, damage.first_offset, damage.position
    end = damage.position + damage.size
    file = _target(partition, damage)
    while file is not None and offset < damage.next_offset:
        fetched = await read_replica(broker, partition, offset, replica)
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
    await _sync(broker, partition, [file])
    if _target(partition, damage) is None:
        return False
    try:
        indexes = repaired(opened, damage)
    except OSError as e:
        raise partition.flusher.health.failed(e, f"cannot index {opened.path}") from e
    await _sync(broker, partition, indexes)
    return True


async def _sync(broker: Broker, partition: Partition, files: Iterable[File]) -> None:
    for file in files:
        try:
            await broker.workers.in_thread(file.sync)
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
