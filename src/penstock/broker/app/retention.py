"""Rounds of retention over all partitions of a broker.

A round looks at all logs first. If it would delete far more than usual, the records that were too old already
when the broker began to watch its clock wait for the grace period (`penstock.timekeeping.rounds`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory
from penstock.storage.scan import CorruptLog
from penstock.timekeeping.rounds import Survey

__all__ = ["RetentionRounds", "remove_expired"]

log = get_logger("maintenance")
#: the number of partitions after which a round yields to the event loop
_SLICE: Final = 64


class RetentionRounds:
    """Applies retention to all partitions, one round at a time."""

    def __init__(self, partitions: Partitions, workers: Workers, clock_watch: ClockWatch) -> None:
        self._partitions = partitions
        self._workers = workers
        self._clock_watch = clock_watch

    async def retain(self) -> None:
        """Remove expired segments; their files are deleted later, so that slow readers can finish.

        The log start offsets of a directory are saved before any of its segments is removed: after a crash, a
        missing segment above the saved offset counts as lost. While the wall clock is not trusted, only the
        size and the log start offset decide.
        """
        overdue = await self._find_overdue()
        now_ms = self._clock_watch.now_ms()
        expired: dict[DataDirectory, list[Partition]] = {}
        for i, partition in enumerate(self._usable()):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
                # The clock may have jumped meanwhile.
                now_ms = self._clock_watch.now_ms()
            try:
                if await self._expire(partition, None if partition in overdue else now_ms):
                    expired.setdefault(partition.directory, []).append(partition)
            except (StorageError, CorruptLog) as e:
                log.error("retention_failed", partition=partition.name, error=str(e))
        deleted = 0
        for directory, partitions in expired.items():
            try:
                await self._partitions.checkpoints.write(directory)
            except StorageError as e:
                log.error("retention_failed", directory=directory.path, error=str(e))
            else:
                deleted += sum(remove_expired(self._partitions, partition) for partition in partitions)
        self._clock_watch.deleted(deleted)

    def _usable(self) -> Iterator[Partition]:
        for partition in list(self._partitions):
            if partition.is_online:
                yield partition

    async def _find_overdue(self) -> set[Partition]:
        """The partitions whose oldest records must not be deleted by time in this round."""
        overdue: set[Partition] = set()
        all_logs, since_ms = Survey(), self._clock_watch.watched_since_ms
        for i, partition in enumerate(self._usable()):
            if i % _SLICE == 0:
                await asyncio.sleep(0)
            try:
                found = await self._survey(partition, since_ms)
            except (StorageError, CorruptLog):
                # The round itself fails there, too, and logs it.
                continue
            if found.overdue:
                overdue.add(partition)
            all_logs = Survey(
                all_logs.total + found.total,
                all_logs.overdue + found.overdue,
                max(all_logs.newest_ms, found.newest_ms),
            )
        return set() if self._clock_watch.may_delete_overdue(all_logs) else overdue

    async def _survey(self, partition: Partition, since_ms: int) -> Survey:
        def survey() -> Survey:
            if not partition.hosted:
                return Survey()
            return partition.log.retention.survey(since_ms, cached_only=True)

        return await retry_when_cached(partition, self._workers, survey)

    async def _expire(self, partition: Partition, now_ms: int | None) -> bool:
        def expire() -> bool:
            # The partition may have been removed while its indexes were read.
            return partition.hosted and partition.expire(now_ms)

        return await retry_when_cached(partition, self._workers, expire)


def remove_expired(partitions: Partitions, partition: Partition) -> int:
    """Remove the segments before the local log start; returns their bytes if they have gone by time."""
    if not partition.hosted:
        return 0
    before = partition.log.size
    try:
        removals = partition.log.retention.remove_expired()
    except StorageError as e:
        log.error("retention_failed", partition=partition.name, error=str(e))
        return 0
    delay_s = partition.log.config.file_delete_delay_ms / 1000
    for removal in removals:
        log.info("segment_removed", partition=partition.name, base_offset=removal.base_offset)
        asyncio.get_running_loop().call_later(delay_s, partitions.delete_later, removal)
    return before - partition.log.size if partition.log.config.retention_bytes < 0 else 0
