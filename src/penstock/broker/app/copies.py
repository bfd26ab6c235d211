"""Copies the sealed segments of tiered topics to the archive, in the background (ADR 83).

A round looks at all partitions that this broker leads, and gives each that has something to copy, or to leave
out of its manifest, a turn. A turn that fails is tried again later; a store that is down delays copies and
nothing else. The broker's own copy is the subject of `local_retention`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from penstock.archive.errors import ArchiveError, WriterDeposed
from penstock.archive.names import ArchivedPartition
from penstock.broker.app.archive_access import ArchiveAccess, owner_of
from penstock.broker.base.logs import get_logger
from penstock.broker.base.rounds import Rounds
from penstock.broker.replica.copy_source import PartitionSource, copyable_end, sealed_since
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.ports import World
from penstock.tiering.bandwidth import Bandwidth
from penstock.tiering.copying import Archive, CopyTurn, release
from penstock.tiering.progress import Copied
from penstock.tiering.schedule import CopySchedule
from penstock.tiering.stats import CopyStats, LedTopic
from penstock.tiering.turn_objects import TurnObjects

__all__ = ["ArchiveCopies"]

log = get_logger("tiering")
#: the number of partitions after which a round yields to the event loop
_SLICE: Final = 64


class ArchiveCopies:
    """Copies in `rounds`."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        image: ClusterImage,
        access: ArchiveAccess,
        world: World,
        stats: CopyStats,
    ) -> None:
        self._config = config
        self._access = access
        self._process = access.copy_process()
        self._partitions = partitions
        self._image = image
        self._world = world
        self._stats = stats
        self._bandwidth = Bandwidth()
        self._schedule: CopySchedule[Partition] = CopySchedule(world.rng)
        #: leader epochs of the tiered partitions that this broker led in the last round
        self._led: dict[ArchivedPartition, int] = {}
        #: those of topics that have been deleted since, which their archive has to forget
        self._deleted: dict[ArchivedPartition, int] = {}
        self._retry_s = 0.0
        self.rounds: Final = Rounds(self._round, lambda: self._retry_s, _report, waits_first=False)

    async def stop(self) -> None:
        """Return when no copy is under way."""
        await self.rounds.stop()
        if self._process is not None:
            await self._process.stop()

    # -- a round

    async def _round(self) -> None:
        self._retry_s = self._config.remote_log_manager_task_interval_ms / 1000
        wanted = await self._survey()
        if self._process is not None:
            await self._process.rest()
        if not wanted and not self._deleted:
            # Whether the archive can be opened again is not known.
            self._stats.available = self._stats.available or None
            return
        world = self._world
        # Each time: an archive that was emptied gets a new root, before anything is put into it.
        try:
            root = await self._access.root()
        except (ArchiveError, OSError):
            self._stats.available = False
            for topic in {partition.topic for partition in wanted}:
                self._stats.of(topic).errors += 1
            raise
        self._stats.available = True
        archive = Archive(
            store=self._access.store,
            archive_id=root.id,
            clock=world.clock,
            rng=world.rng,
            workers=world.workers,
            pace=self._pace,
            put=lambda size: None,
        )
        await self._release_deleted(archive)
        while wanted:
            again: dict[Partition, None] = {}
            async with asyncio.TaskGroup() as group:
                for _ in range(self._config.remote_log_manager_copier_thread_pool_size):
                    group.create_task(self._turns(archive, wanted, again))
            wanted = again
        await self._survey()

    async def _turns(
        self, archive: Archive, wanted: dict[Partition, None], again: dict[Partition, None]
    ) -> None:
        """Give one partition after another its turn; those that have more to copy are put into `again`."""
        clock = self._world.clock
        while (partition := self._schedule.due(wanted, clock.monotonic())) is not None:
            del wanted[partition]
            is_done, before = False, partition.archived
            try:
                is_done = await self._turn(archive, partition)
            finally:
                pause_s = self._schedule.ended(partition, clock.monotonic(), failed=not is_done)
            if not is_done:
                self._retry_s = min(self._retry_s, pause_s)
            elif partition.archived != before and self._wants_turn(partition):
                again[partition] = None

    async def _turn(self, archive: Archive, partition: Partition) -> bool:
        """Returns false if the turn has failed."""
        owner, stats = owner_of(partition), self._stats.of(partition.topic)
        source = PartitionSource(partition, self._world.workers)

        def put(size: int) -> None:
            stats.requests += 1
            stats.bytes += size

        try:
            if partition.log.config.remote_storage_enable:
                objects = self._objects(archive, owner, partition)
                turn = CopyTurn(replace(archive, put=put), source, owner, partition.leader_epoch, objects)
                copied = await turn.run()
            else:
                await self._give_up_archived(partition)
                copied = await self._release(archive, owner, partition.leader_epoch)
        except WriterDeposed as e:
            # The next leader copies. This broker learns of it from the metadata.
            log.info("copy_deposed", partition=partition.name, reason=str(e))
            return False
        except (PenstockError, OSError) as e:
            stats.errors += 1
            log.warning("copy_failed", partition=partition.name, error=str(e) or repr(e))
            return False
        if copied is not None and source.is_leader:
            partition.archived = copied
        return True

    def _objects(
        self, archive: Archive, owner: ArchivedPartition, partition: Partition
    ) -> TurnObjects | None:
        """Of another process; None for those of this one."""
        if self._process is None:
            return None
        return self._process.objects(archive.archive_id, owner, partition.log.path)

    async def _give_up_archived(self, partition: Partition) -> None:
        """The topic is not tiered any more: its log starts where the local segments do, before copies go."""
        if partition.log.log_start_offset < partition.log.local_log_start_offset:
            partition.advance_log_start(partition.log.local_log_start_offset)
            await self._partitions.checkpoints.write(partition.directory)

    async def _release(self, archive: Archive, owner: ArchivedPartition, leader_epoch: int) -> Copied:
        if await release(archive, owner, leader_epoch):
            log.info("copies_released", partition=str(owner), topic_id=owner.topic_id.hex())
        return Copied(None, 0, None)

    async def _release_deleted(self, archive: Archive) -> None:
        """Deleted topics: name none of their segments any more."""
        for owner, leader_epoch in list(self._deleted.items()):
            try:
                await self._release(archive, owner, leader_epoch)
            except WriterDeposed as e:
                # A later leader has written: it releases the copies.
                log.info("copy_deposed", partition=str(owner), reason=str(e))
            except (ArchiveError, OSError) as e:
                log.warning("copy_failed", partition=str(owner), error=str(e))
                continue
            del self._deleted[owner]

    async def _pace(self, size: int) -> None:
        limit = self._config.remote_log_manager_copy_max_bytes_per_second
        pause_s = self._bandwidth.reserve(size, limit, self._world.clock.monotonic())
        if pause_s > 0:
            await asyncio.sleep(pause_s)

    # -- what there is to do

    async def _survey(self) -> dict[Partition, None]:
        """The partitions that want a turn; updates the lags, and notes deleted topics."""
        wanted: dict[Partition, None] = {}
        led: dict[ArchivedPartition, int] = {}
        topics: dict[str, LedTopic] = {}
        partitions = list(self._partitions)
        for i, partition in enumerate(partitions):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            if not (partition.leading and partition.is_online):
                continue
            if self._wants_turn(partition):
                wanted[partition] = None
            if partition.log.config.remote_storage_enable:
                led[owner_of(partition)] = partition.leader_epoch
                waiting = sealed_since(partition.log, _copied_until(partition))
                size, known = sum(each.size for each in waiting), partition.archived
                before = topics.get(partition.topic, LedTopic(0, 0, 0))
                topics[partition.topic] = before.plus(size, len(waiting), known.log_size if known else 0)
        for owner, leader_epoch in self._led.items():
            if owner not in led and owner.topic_id not in self._image.topics_by_id:
                self._deleted[owner] = leader_epoch
        self._led = led
        self._stats.set_led(topics)
        self._schedule.keep(partitions)
        return wanted

    def _wants_turn(self, partition: Partition) -> bool:
        opened, known = partition.log, partition.archived
        config = opened.config
        if not (partition.leading and partition.is_online):
            return False
        if not config.remote_storage_enable:
            released = known is not None and known.end_offset is None
            return config.remote_log_delete_on_disable and not released
        if known is None:
            return True
        if known.first_end is not None and opened.log_start_offset >= known.first_end:
            return True
        if config.remote_log_copy_disable:
            return False
        waiting = sealed_since(opened, _copied_until(partition))
        return bool(waiting) and waiting[0].next_offset <= copyable_end(partition)


def _report(error: Exception, is_expected: bool) -> None:
    if is_expected:
        log.warning("archive_unavailable", error=str(error))
    else:
        log.error("copies_failed", error=repr(error), exc_info=error)


def _copied_until(partition: Partition) -> int:
    known = partition.archived
    return max(partition.log.log_start_offset, 0 if known is None else known.next_offset)
