"""Looks for damage in sealed segments, and replaces it with the bytes of a healthy replica.

Round after round every sealed segment of every replica here is read, in pieces, in a process of its own, at
`penstock.scrub.bytes.per.second`. What is damaged is reported, and from then on neither clients nor followers
get it. Then the other replicas are asked for the range, as any reader asks: the leader first, then those in
sync. Their bytes are checked and written over the damaged ones, in place. That is the same for leaders and
followers, takes nobody out of the ISR, and costs nothing that is healthy.

Invariant: a range counts as sound again only when all of it has been written and is on the disk.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.broker.world import OsFiles
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, PenstockError
from penstock.ports import File
from penstock.records.batch import HEADER_SIZE, LOG_OVERHEAD, read_offset_and_length
from penstock.storage.recovery import Corruption
from penstock.storage.scrub import (
    Piece,
    describe,
    note_damage,
    repair_target,
    repaired,
    scrub,
    sealed_segments,
)
from penstock.storage.segment import Segment
from penstock.storage.validation import check_replicated
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

__all__ = ["Scrubber"]

log = get_logger("scrubber")
#: what is checked in one go, and fetched with one request
_PIECE_BYTES: Final = 1 << 20


class Scrubber:
    """Scrubs and repairs the replicas of one broker from `start` to `stop`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.penstock_scrub_interval_ms / 1000)
            await self.scrub_all()

    async def scrub_all(self) -> None:
        """One round over everything that is here."""
        for partition in list(self._broker.partitions):
            try:
                await self.scrub(partition)
                await self.repair(partition)
            except (PenstockError, OSError) as e:
                log.error("scrub_failed", partition=partition.name, error=str(e))
            except Exception as e:
                log.error("scrub_failed", partition=partition.name, error=repr(e), exc_info=e)

    # -- finding

    async def scrub(self, partition: Partition) -> None:
        """Check every sealed segment of a replica."""
        for segment in sealed_segments(partition.log):
            await self._scrub_segment(partition, segment)

    async def _scrub_segment(self, partition: Partition, segment: Segment) -> None:
        broker, done = self._broker, Piece(0, 0)
        # Memory is seen by this process only.
        in_worker = (
            broker.workers.in_process if isinstance(broker.files, OsFiles) else broker.workers.in_thread
        )
        while _is_here(partition):
            sealed = describe(partition.log, segment)
            if sealed is None or done.position >= sealed.size:
                return
            before = done
            size = min(_PIECE_BYTES, sealed.size - done.position)
            await asyncio.sleep(size / broker.config.penstock_scrub_bytes_per_second)
            try:
                done = await in_worker(scrub, broker.files, sealed, before, _PIECE_BYTES)
            except FileNotFoundError:
                # Gone by retention or compaction; where it is not, reads will tell.
                return
            if not _is_here(partition) or describe(partition.log, segment) != sealed:
                # What was read may have been changed while it was.
                return
            for damage in done.damage:
                self._found(partition, segment, damage)
            broker.metrics.scrubbed_bytes += done.position - before.position

    def _found(self, partition: Partition, segment: Segment, damage: Corruption) -> None:
        self._broker.metrics.corruption_found += 1
        log.error(
            "corruption_found",
            partition=partition.name,
            first_offset=damage.first_offset,
            next_offset=damage.next_offset,
            path=damage.path,
            position=damage.position,
            bytes=damage.size,
            leading=partition.leading,
        )
        note_damage(partition.log, segment, damage)

    # -- repairing

    async def repair(self, partition: Partition) -> None:
        """Replace what is known to be damaged, by this scrubber or by recovery, as far as others have it."""
        for damage in list(partition.log.recovery.corruption):
            for replica in self._sources(partition):
                try:
                    done = await self._copy(partition, damage, replica)
                except PenstockError as e:
                    log.warning("repair_failed", partition=partition.name, source=replica, error=str(e))
                    continue
                if done:
                    self._broker.metrics.corruption_repaired += 1
                    log.info(
                        "corruption_repaired",
                        partition=partition.name,
                        source=replica,
                        first_offset=damage.first_offset,
                        next_offset=damage.next_offset,
                        bytes=damage.size,
                    )
                    break

    def _sources(self, partition: Partition) -> list[int]:
        """Who may have what we lack: the leader, then the others in sync."""
        topic = self._broker.image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.index not in topic.partitions:
            return []
        known = topic.partitions[partition.index]
        others = {node: None for node in (known.leader, *known.isr) if node >= 0}
        others.pop(self._broker.node_id, None)
        return list(others)

    async def _copy(self, partition: Partition, damage: Corruption, replica: int) -> bool:
        """Write a replica's bytes over ours; False if ours cannot be replaced in place."""
        opened, offset, position = partition.log, damage.first_offset, damage.position
        end = damage.position + damage.size
        file = self._target(partition, damage)
        while file is not None and offset < damage.next_offset:
            batches, next_offset = _within(await self._fetch(partition, offset, replica), offset, damage)
            # It may have been cut, compacted or let go of while we waited.
            file = self._target(partition, damage)
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
        try:
            await self._broker.workers.in_thread(file.sync)
        except OSError as e:
            raise partition.flusher.health.sync_failed(e, f"cannot sync {opened.path}") from e
        if self._target(partition, damage) is None:
            return False
        repaired(opened, damage)
        return True

    def _target(self, partition: Partition, damage: Corruption) -> File | None:
        return repair_target(partition.log, damage) if _is_here(partition) else None

    async def _fetch(self, partition: Partition, offset: int, replica: int) -> memoryview:
        """Committed bytes from `offset` on, as any reader gets them."""
        wanted = FetchPartition(
            partition=partition.index, fetch_offset=offset, partition_max_bytes=_PIECE_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_PIECE_BYTES,
            topics=[FetchTopic(topic_id=partition.topic_id, partitions=[wanted])],
        )
        timeout_s = self._broker.config.replica_socket_timeout_ms / 1000
        response = await self._broker.peer(replica, "repair").send(FETCH, request, timeout_s)
        ((answer,),) = [topic.partitions for topic in response.responses]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        assert isinstance(answer.records, memoryview)
        return answer.records


def _is_here(partition: Partition) -> bool:
    return partition.hosted and partition.directory.health.offline is None


def _within(fetched: memoryview, offset: int, damage: Corruption) -> tuple[memoryview, int]:
    """The whole, sound batches in a damaged range that follow each other from `offset` on, and their end."""
    end = 0
    while end + LOG_OVERHEAD <= len(fetched):
        base, size = read_offset_and_length(fetched, end)
        if size < HEADER_SIZE or base >= damage.next_offset or end + size > len(fetched):
            break
        end += size
    batches = fetched[:end]
    for header in check_replicated(batches):
        if header[0] != offset:
            raise CorruptMessage(f"a batch at offset {header[0]} where {offset} should be")
        offset = header[0] + header[6] + 1
    if not batches or offset > damage.next_offset:
        raise CorruptMessage(f"no batches that end at {damage.next_offset}, as ours do")
    return batches, offset
