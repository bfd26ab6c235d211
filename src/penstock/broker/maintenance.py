"""The chores of a broker: retention, compaction, checkpoints, forgetting producers.

Each is a loop that sleeps, works through the partitions, and lets the event loop breathe in between. An error
in one round is logged and does not end the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.broker.controller import Controller
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError, StorageError
from penstock.ports import Clock, Files, Workers
from penstock.storage import cleaner
from penstock.storage.compaction import CompactionPlan
from penstock.storage.scan import CorruptLog

__all__ = ["Maintenance"]

log = get_logger("maintenance")
#: partitions to work through before others get a turn
_SLICE: Final = 64
#: how long a disk that was full may have space again before we notice
_REOPEN_MS: Final = 1000


class Maintenance:
    """Runs the chores from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        controller: Controller,
        clock: Clock,
        files: Files,
        workers: Workers,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._controller = controller
        self._clock = clock
        self._files = files
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []
        #: logs that are damaged where compaction has to read
        self._uncleanable: set[Partition] = set()
        #: up to where each compacted log is clean, as far as it was asked
        self._clean_until: dict[Partition, int] = {}

    def start(self) -> None:
        config = self._config
        chores: list[tuple[Callable[[], Awaitable[None]], Callable[[], int]]] = [
            (self.retain, lambda: config.log_retention_check_interval_ms),
            (self.checkpoint, lambda: config.log_flush_offset_checkpoint_interval_ms),
            (self.forget_producers, lambda: config.producer_id_expiration_check_interval_ms),
            (self.reopen, lambda: _REOPEN_MS),
        ]
        if config.log_cleaner_enable:
            chores.append((self.clean, lambda: config.log_cleaner_backoff_ms))
        self._tasks = [asyncio.create_task(_repeat(chore, every_ms)) for chore, every_ms in chores]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def retain(self) -> None:
        """Drop what retention says; the files go a while later, when no slow reader can need them."""
        now_ms = self._clock.now_ms()
        for i, partition in enumerate(list(self._partitions)):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            if not partition.leading or partition.directory.health.offline is not None:
                continue
            try:
                removals = partition.log.apply_retention(now_ms)
            except StorageError as e:
                log.error("retention_failed", partition=partition.name, error=str(e))
                continue
            delay_s = partition.log.config.file_delete_delay_ms / 1000
            for removal in removals:
                log.info("segment_removed", partition=partition.name, base_offset=removal.base_offset)
                asyncio.get_running_loop().call_later(delay_s, self._partitions.delete_later, removal)

    async def checkpoint(self) -> None:
        await self._partitions.checkpoint()

    async def reopen(self) -> None:
        """Give partitions that a full disk had no room for another chance."""
        if self._partitions.any_refused:
            await self._controller.between_changes(self._partitions.reopen)

    async def forget_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for i, partition in enumerate(list(self._partitions)):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            partition.log.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    async def clean(self) -> None:
        """Compact whatever is due, the dirtiest log first."""
        self._clean_until = {p: offset for p, offset in self._clean_until.items() if p.leading}
        failed: set[Partition] = set()
        while await self._clean_one(failed):
            pass

    async def _clean_one(self, failed: set[Partition]) -> bool:
        """Compact one log, or note that it failed so that others get their turn; False if none is due."""
        candidates = [p for p in self._partitions if p not in failed and self._can_clean(p)]
        for partition in candidates:
            if partition not in self._clean_until:
                self._clean_until[partition] = cleaner.read_checkpoint(self._files, partition.log.path) or 0
        now_ms = self._clock.now_ms()
        found = cleaner.choose(((p, p.log) for p in candidates), now_ms, self._clean_until)
        if found is None:
            return False
        partition, dirt = found
        try:
            plan = cleaner.plan(dirt, now_ms, self._config.log_cleaner_dedupe_buffer_size)
            if not await self._compact(partition, plan):
                failed.add(partition)
        except (StorageError, OSError, CorruptLog) as e:
            log.error("compaction_failed", partition=partition.name, error=str(e))
            failed.add(partition)
            if isinstance(e, CorruptLog):
                self._uncleanable.add(partition)
        return True

    async def _compact(self, partition: Partition, plan: CompactionPlan) -> bool:
        result = await cleaner.clean(partition.log, plan, self._files, self._workers)
        if result is None:
            log.info("compaction_abandoned", partition=partition.name)
            return False
        self._clean_until[partition] = result.clean_until
        path = partition.log.path
        await self._workers.in_thread(cleaner.write_checkpoint, self._files, path, result.clean_until)
        log.info("compacted", partition=partition.name, clean_until=result.clean_until)
        return True

    def _can_clean(self, partition: Partition) -> bool:
        return (
            partition.log.config.compact
            and partition.leading
            and partition not in self._uncleanable
            and partition.directory.health.offline is None
        )


async def _repeat(chore: Callable[[], Awaitable[None]], every_ms: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(every_ms() / 1000)
        try:
            await chore()
        except (PenstockError, OSError) as e:
            log.error("chore_failed", chore=chore.__name__, error=str(e))
        except Exception as e:
            log.error("chore_failed", chore=chore.__name__, error=repr(e), exc_info=e)
