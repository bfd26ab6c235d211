"""Cuts the logs of a topic that has returned to a link, and keeps what they had behind the cut.

The metadata has the cut of each partition, and a leader epoch that began with it (`metadata/mirror_cuts.py`).
A replica with records behind the cut, all of them of earlier epochs, copies them to the quarantine, and
truncates its log, before it leads or follows. That also holds for one that was away meanwhile.

Invariant: nothing is truncated before its copy is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from errno import EBADMSG
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.log_ranges import log_ranges, pieces
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.replica.stored_partitions import log_quarantined
from penstock.metadata.image import PartitionImage
from penstock.model.config.mirrored_topics import Cut, MirroredTopic
from penstock.ports import FileRange, World
from penstock.replication.fetch_plan import PartitionKey
from penstock.storage.scan import CorruptLog
from penstock.storage.segment_files import LOG, file_name

__all__ = ["TailCuts", "due_cut"]

log = get_logger("replicas")
_RETRY_S: Final = 5.0


class TailCuts:
    """Of the replicas of one broker. Owned by the event loop's thread."""

    def __init__(
        self,
        partitions: Partitions,
        world: World,
        between_changes: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        done: Callable[[Partition], None],
    ) -> None:
        """`between_changes` runs work while no metadata is applied; `done` gives a partition its role."""
        self._partitions = partitions
        self._workers = world.workers
        self._clock = world.clock
        self._between_changes = between_changes
        self._done = done
        self._tasks: dict[PartitionKey, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def begin(self, partition: Partition, wanted: PartitionImage) -> bool:
        """Cut the log if that is due. Returns true if the partition must have no role until `done`."""
        if due_cut(partition, wanted.leader_epoch) is None:
            return False
        if wanted.key not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(partition, wanted))
            self._tasks[wanted.key] = task
        return True

    async def _run(self, partition: Partition, wanted: PartitionImage) -> None:
        try:
            while True:
                try:
                    await self._cut(partition, wanted)
                    break
                except Exception as e:  # noqa: BLE001 - the partition would stay without a role
                    log.error("returned_log_not_cut", partition=partition.name, error=str(e) or repr(e))
                    await asyncio.sleep(_RETRY_S)
        finally:
            del self._tasks[wanted.key]
        self._done(partition)

    async def _cut(self, partition: Partition, wanted: PartitionImage) -> None:
        """Copy the end of the log, and truncate it. Nothing is appended meanwhile: there is no role."""
        cut = due_cut(partition, wanted.leader_epoch)
        if cut is None or not self._is_hosted(partition):
            return
        end_offset = partition.log.end_offset
        if max(cut.offset, partition.log.log_start_offset) < end_offset:
            await self._copy(partition, cut)

        async def truncate() -> None:
            own = partition.log
            is_same = due_cut(partition, wanted.leader_epoch) == cut and own.end_offset == end_offset
            if is_same and self._is_hosted(partition):
                own.truncate_to(cut.offset)
                log.warning("returned_log_cut", partition=partition.name, offset=cut.offset)

        await self._between_changes(truncate)

    def _is_hosted(self, partition: Partition) -> bool:
        return self._partitions.find(partition.topic_id, partition.index) is partition

    async def _copy(self, partition: Partition, cut: Cut) -> None:
        own, directory = partition.log, partition.directory
        directory.health.check()
        start = max(cut.offset, own.log_start_offset)
        # Not the headers of the batches, of which a log has millions.
        parts: list[FileRange] = []
        records, first, reached = 0, start, start
        try:
            async for each in log_ranges(own, start, own.end_offset, self._workers):
                if not parts:
                    first = each.headers[0].base_offset
                parts.append(each.bytes)
                records += each.records
                reached = each.headers[-1].next_offset
        except (CorruptLog, OSError) as e:
            # An encrypted file tells that it is damaged by EBADMSG.
            if isinstance(e, OSError) and e.errno != EBADMSG:
                raise
        damaged = ""
        if reached < own.end_offset:
            # The leader has no more use for them, and the user may: all bytes, as they are.
            damaged = f", and damaged bytes from {reached} on"
            parts = [piece for part in own.tail(start) for piece in pieces(part)]
        link = MirroredTopic.parse(own.config.penstock_link)
        reason = (
            f"the topic has returned to link {link.link}, whose source lacks these {records} records"
            f"{damaged}: offsets {start} to {own.end_offset - 1}, of leader epochs up to {cut.leader_epoch}"
        )
        entry = await self._workers.in_thread(
            lambda: directory.quarantine.copy(
                partition.topic,
                partition.topic_id,
                partition.index,
                f"{file_name(first)}{LOG}",
                (part.read_unverified() if damaged else part.read() for part in parts),
                sum(part.size for part in parts),
                reason,
                self._clock.now_ms(),
            )
        )
        log_quarantined(directory, entry)


def due_cut(partition: Partition, leader_epoch: int) -> Cut | None:
    """The cut of a log that has records behind it, and none of a later leader epoch; None if it has not.

    `leader_epoch` is the partition's in the metadata.
    """
    config = partition.log.config.penstock_link
    if not config:
        return None
    cuts = MirroredTopic.parse(config).cuts
    if partition.index >= len(cuts):
        return None
    cut, own = cuts[partition.index], partition.log
    return cut if cut.is_due(own.end_offset, own.leader_epochs.latest, leader_epoch) else None
