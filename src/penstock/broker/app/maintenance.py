"""Background tasks of a broker: retention, compaction, checkpoints, expiry of producer ids.

Each task is a loop that sleeps, works through the partitions, and yields to the event loop in between. An
error in one round is logged and does not end the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from penstock.broker.app.quarantine_expiry import QuarantineExpiry
from penstock.broker.app.retention import RetentionRounds
from penstock.broker.base.awaiting import uninterrupted
from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.encrypted_disks import paced
from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.base.rounds import Rounds
from penstock.broker.healing.full_directories import FullDirectories
from penstock.broker.healing.repair import Outcome
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.node.controller import Controller
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import StorageError
from penstock.model.ticks import until_tick
from penstock.ports import World
from penstock.storage import cleaner
from penstock.storage.cleaner import Dirt
from penstock.storage.index_files import OtherSegment
from penstock.storage.log import Log
from penstock.storage.scan import CorruptLog

__all__ = ["Maintenance"]

log = get_logger("maintenance")
#: the number of partitions after which a task yields to the event loop
_SLICE: Final = 64
#: how often directories are checked for space
_ROOM_MS: Final = 1000
#: how often the wall clock is checked for a jump, and the reserve of descriptors is restored
_WATCH_MS: Final = 1000


class Maintenance:
    """Runs the background tasks from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        full_directories: FullDirectories,
        controller: Controller,
        clock_watch: ClockWatch,
        world: World,
        repair: Callable[[Partition], Awaitable[Outcome | None]],
    ) -> None:
        """`repair` finds all damage of a replica and repairs it; it returns None if there is none."""
        self._config = config
        self._partitions = partitions
        self._full_directories = full_directories
        self._controller = controller
        self._clock = world.clock
        self._clock_watch = clock_watch
        self._files = world.files
        self._workers = world.workers
        self._repair = repair
        self._quarantine = QuarantineExpiry(
            config, partitions, world.clock, world.workers, clock_watch.now_ms
        )
        self._retention = RetentionRounds(partitions, world.workers, clock_watch)
        self._chores: list[Rounds] = []
        #: logs that compaction cannot read although no damage was found that could be repaired
        self._uncleanable: set[Partition] = set()
        self._choosing = asyncio.Lock()
        #: the offset up to which each compacted log is clean, as far as it was read
        self._clean_until: dict[Partition, int] = {}

    def start(self) -> None:
        config = self._config
        # Chores that write files do not use ticks: brokers of one machine should not write all at once.
        chores: list[tuple[Callable[[], Awaitable[None]], Callable[[], float]]] = [
            (self.retain, lambda: config.log_retention_check_interval_ms),
            (self.checkpoint, lambda: config.log_flush_offset_checkpoint_interval_ms),
            (
                self._partitions.checkpoints.write_high_watermarks,
                lambda: config.replica_high_watermark_checkpoint_interval_ms,
            ),
            (self.expire_producers, lambda: config.producer_id_expiration_check_interval_ms),
            (self._quarantine.expire, lambda: self._quarantine.interval_ms),
            (self.check_space, lambda: _until_tick_ms(_ROOM_MS)),
            (self.watch, lambda: _until_tick_ms(_WATCH_MS)),
        ]
        if config.log_cleaner_enable:
            chores.append((self.clean, lambda: config.log_cleaner_backoff_ms))
        DESCRIPTORS.on_shortage(self, self._partitions.close_files)
        self._chores = [_chore(run, pause_ms) for run, pause_ms in chores]
        for each in self._chores:
            each.start()

    async def stop(self) -> None:
        DESCRIPTORS.forget(self)
        await asyncio.gather(*(each.stop() for each in self._chores))

    async def watch(self) -> None:
        """Check the clock and restore descriptors: one chore, because each wakes up an idle broker."""
        self.check_clock()
        self.restore_descriptors()

    def restore_descriptors(self) -> None:
        if not DESCRIPTORS.restore():
            DESCRIPTORS.relieve()
            DESCRIPTORS.restore()

    def check_clock(self) -> None:
        self._clock_watch.check()

    async def retain(self) -> None:
        await self._retention.retain()

    async def checkpoint(self) -> None:
        await self._partitions.checkpoints.write_all()

    async def check_space(self) -> None:
        """Check which directories are full, and reopen partitions that could not be created in one."""
        await self._full_directories.look()
        if self._partitions.any_refused:
            await self._controller.between_changes(self._partitions.reopen)

    async def expire_producers(self) -> None:
        now_ms = self._clock_watch.now_ms()
        if now_ms is None:
            return
        for i, partition in enumerate(list(self._partitions)):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            partition.log.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    async def clean(self) -> None:
        """Compact all logs that are due, the dirtiest first, `log.cleaner.threads` at a time.

        Nothing is compacted while the wall clock is not trusted: it determines the removal of tombstones.
        """
        if self._clock_watch.now_ms() is None:
            return
        self._clean_until = {p: offset for p, offset in self._clean_until.items() if p.hosted}
        cleaners = self._config.log_cleaner_threads
        tried: set[Partition] = set()
        async with asyncio.TaskGroup() as group:
            for _ in range(cleaners):
                group.create_task(self._clean_in_turn(tried, cleaners))

    async def _clean_in_turn(self, tried: set[Partition], cleaners: int) -> None:
        """Run one of `cleaners`: compact one log after another until all due logs have been tried."""
        while (found := await self._dirtiest(tried)) is not None:
            partition, dirt = found
            try:
                # A compacted log may be due again. A log that failed must let others have their turn.
                if await self._compact(partition, dirt, cleaners):
                    tried.discard(partition)
            except (StorageError, OSError) as e:
                log.error("compaction_failed", partition=partition.name, error=str(e))
            except OtherSegment as e:
                log.error("compaction_failed", partition=partition.name, error=str(e))
                # The scrubber replaces the segment within a minute. Later rounds try again.
                partition.log.segments.exchanged |= {e.base_offset}
            except CorruptLog as e:
                log.error("compaction_failed", partition=partition.name, error=str(e))
                # A log with known damage is skipped. If no damage is found, the log is never tried again.
                if await self._repair(partition) is None:
                    self._uncleanable.add(partition)

    async def _dirtiest(self, tried: set[Partition]) -> tuple[Partition, Dirt] | None:
        """Choose the log to compact next, and mark it as tried; one cleaner chooses at a time."""
        async with self._choosing:
            measured = []
            for i, partition in enumerate(list(self._partitions)):
                if i % _SLICE == 0:
                    await asyncio.sleep(0)
                if partition in tried or not self._can_clean(partition):
                    continue
                try:
                    measured.append((partition, await self._measure(partition)))
                except (StorageError, OSError, CorruptLog) as e:
                    log.error("compaction_failed", partition=partition.name, error=str(e))
                    tried.add(partition)
            found = cleaner.choose((p, dirt) for p, dirt in measured if self._can_clean(p))
            if found is not None:
                tried.add(found[0])
            return found

    async def _measure(self, partition: Partition) -> Dirt:
        opened = partition.log
        if partition not in self._clean_until:
            self._clean_until[partition] = await self._read_clean_until(opened)
        clean_until, now_ms = self._clean_until[partition], self._clock.now_ms()
        return await retry_when_cached(
            partition,
            self._workers,
            lambda: cleaner.measure(opened, clean_until, now_ms, cached_only=True),
        )

    async def _read_clean_until(self, opened: Log) -> int:
        """The end of the compacted part of a log; 0 if that is not known."""
        try:
            read = await self._workers.in_thread(cleaner.read_checkpoint, self._files, opened.path)
        except ValueError as e:
            path = f"{opened.path}/{cleaner.CHECKPOINT_FILE}"
            log.warning("checkpoint_damaged", path=path, error=str(e))
            return 0
        return read or 0

    async def _compact(self, partition: Partition, dirt: Dirt, cleaners: int) -> bool:
        """Compact a log with this cleaner's share of memory and disk bandwidth.

        False if the log has changed too much, or the wall clock is no longer trusted.
        """
        config, opened = self._config, partition.log
        now_ms, memory_bytes = self._clock_watch.now_ms(), config.log_cleaner_dedupe_buffer_size // cleaners
        if now_ms is None:
            return False
        files = paced(self._files, config.log_cleaner_io_max_bytes_per_second / cleaners)
        async with partition.rewriting:
            plan = await retry_when_cached(
                partition, self._workers, lambda: cleaner.plan(dirt, now_ms, memory_bytes, cached_only=True)
            )
            result = await cleaner.clean(
                opened, plan, files, self._workers, lambda: partition.hosted, uninterrupted
            )
        if result is None:
            log.info("compaction_abandoned", partition=partition.name)
            return False
        self._clean_until[partition] = result.clean_until
        await self._workers.in_thread(cleaner.write_checkpoint, self._files, opened.path, result.clean_until)
        log.info("compacted", partition=partition.name, clean_until=result.clean_until)
        return True

    def _can_clean(self, partition: Partition) -> bool:
        return (
            partition.log.config.compact
            and partition.is_online
            and partition not in self._uncleanable
            and not partition.log.recovery.corruption
        )


def _until_tick_ms(interval_ms: int) -> float:
    return until_tick(asyncio.get_running_loop().time(), interval_ms / 1000) * 1000


def _chore(run: Callable[[], Awaitable[None]], pause_ms: Callable[[], float]) -> Rounds:
    return Rounds(run, lambda: pause_ms() / 1000, partial(_report, run.__name__))


def _report(name: str, error: Exception, is_expected: bool) -> None:
    if is_expected:
        log.error("chore_failed", chore=name, error=str(error))
    else:
        log.error("chore_failed", chore=name, error=repr(error), exc_info=error)
