"""The chores of a broker: retention, compaction, checkpoints, forgetting producers.

Each is a loop that sleeps, works through the partitions, and lets the event loop breathe in between. An error
in one round is logged and does not end the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.broker.logs import get_logger
from penstock.broker.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicPartition
from penstock.ports import Clock, Files, Workers
from penstock.storage import cleaner
from penstock.storage.directory import DataDirectory
from penstock.storage.log import Log
from penstock.storage.scan import CorruptLog

__all__ = ["Maintenance"]

log = get_logger("maintenance")
#: partitions to work through before others get a turn
_SLICE: Final = 64


class Maintenance:
    """Runs the chores from `start` to `stop`."""

    def __init__(
        self, config: BrokerConfig, partitions: Partitions, clock: Clock, files: Files, workers: Workers
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._clock = clock
        self._files = files
        self._workers = workers
        self._tasks: list[asyncio.Task[None]] = []
        #: logs that are damaged where compaction has to read
        self._uncleanable: set[Log] = set()

    def start(self) -> None:
        config = self._config
        chores: list[tuple[Callable[[], Awaitable[None]], Callable[[], int]]] = [
            (self.retain, lambda: config.log_retention_check_interval_ms),
            (self.checkpoint, lambda: config.log_flush_offset_checkpoint_interval_ms),
            (self.forget_producers, lambda: config.producer_id_expiration_check_interval_ms),
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
            if not partition.leading:
                continue
            removals = partition.log.apply_retention(now_ms)
            delay_s = partition.log.config.file_delete_delay_ms / 1000
            for removal in removals:
                log.info("segment_removed", partition=partition.name, base_offset=removal.base_offset)
                asyncio.get_running_loop().call_later(delay_s, self._workers.in_thread, removal.delete)

    async def checkpoint(self) -> None:
        await self._partitions.checkpoint()

    async def forget_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for i, partition in enumerate(list(self._partitions)):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            partition.log.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    async def clean(self) -> None:
        """Compact whatever is due, the dirtiest log first."""
        for directory in self._partitions.directories:
            if directory.health.offline is None:
                while await self._clean_one(directory):
                    pass

    async def _clean_one(self, directory: DataDirectory) -> bool:
        """Compact one log of `directory`; False if none is due."""
        partitions = {
            TopicPartition(p.topic, p.index): p
            for p in self._partitions.in_directory(directory)
            if p.leading and p.log.config.compact and p.log not in self._uncleanable
        }
        if not partitions:
            return False
        checkpoints = cleaner.read_checkpoints(self._files, directory.path)
        now_ms = self._clock.now_ms()
        found = cleaner.choose(((tp, p.log) for tp, p in partitions.items()), now_ms, checkpoints)
        if found is None:
            return False
        key, dirt = found
        plan = cleaner.plan(dirt, now_ms, self._config.log_cleaner_dedupe_buffer_size)
        try:
            result = await cleaner.clean(dirt.log, plan, self._files, self._workers)
        except CorruptLog as e:
            # It would be the dirtiest log for ever, and no other would get its turn.
            self._uncleanable.add(dirt.log)
            log.error("compaction_failed", partition=str(key), error=str(e))
            return True
        if result is None:
            log.info("compaction_abandoned", partition=str(key))
            return False
        checkpoints = {tp: o for tp, o in checkpoints.items() if tp in partitions} | {key: result.clean_until}
        await self._workers.in_thread(cleaner.write_checkpoints, self._files, directory.path, checkpoints)
        log.info("compacted", partition=str(key), clean_until=result.clean_until)
        return True


async def _repeat(chore: Callable[[], Awaitable[None]], every_ms: Callable[[], int]) -> None:
    while True:
        await asyncio.sleep(every_ms() / 1000)
        try:
            await chore()
        except (PenstockError, OSError) as e:
            log.error("chore_failed", chore=chore.__name__, error=str(e))
