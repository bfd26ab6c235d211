"""Looks for damage in sealed segments, and has it replaced with the bytes of a healthy replica.

Round after round every sealed segment of every replica here is read, in pieces, in a process of its own, at
`penstock.scrub.bytes.per.second`. What is damaged is reported, and from then on neither clients nor followers
get it, until it has been replaced (`repair`). Then the same segments are compared with other replicas'
(`comparison`), which finds what no checksum does. Beside the rounds what is known to be damaged, from one of
them or from recovery, is tried again every minute.

What is known to be damaged is not kept over a restart: the first round begins soon after the start, and finds
it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.comparison import compare_replica
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.broker.repair import PIECE_BYTES, is_here, others_in_sync, repair_range
from penstock.broker.world import OsFiles
from penstock.model.errors import PenstockError
from penstock.storage.recovery import Corruption
from penstock.storage.scrub import Piece, describe, note_damage, scrub, sealed_segments
from penstock.storage.segment import Segment

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

__all__ = ["Scrubber"]

log = get_logger("scrubber")
#: How long a broker that has started is left alone: those that it serves and follows come first. And how soon
#: damage that is known is looked at again: who can mend it may be back.
_SETTLE_S: Final = 60.0


class Scrubber:
    """Scrubs and repairs the replicas of one broker from `start` to `stop`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        #: the replica that is being compared: what differs there is mended by a verdict, not by who has it
        self._compared: Partition | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._scrub_in_rounds()), loop.create_task(self._mend_often())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _scrub_in_rounds(self) -> None:
        await asyncio.sleep(self._pause_s)
        while True:
            await self.scrub_all()
            await asyncio.sleep(self._interval_s)

    async def _mend_often(self) -> None:
        """Beside the rounds: one may take a day, and what is known to be damaged must not wait for its turn.

        Whoever repairs asks before each write whether the range is damaged still, so two may be at it.
        """
        while True:
            await asyncio.sleep(self._pause_s)
            await self.mend_all()

    @property
    def _interval_s(self) -> float:
        return self._broker.config.penstock_scrub_interval_ms / 1000

    @property
    def _pause_s(self) -> float:
        return min(_SETTLE_S, self._interval_s)

    async def scrub_all(self) -> None:
        """One round over everything that is here."""

        async def tend(partition: Partition) -> None:
            await self.scrub(partition)
            await self.repair(partition)
            self._compared = partition
            try:
                await compare_replica(self._broker, partition)
            finally:
                self._compared = None

        await self._each(tend)

    async def mend_all(self) -> None:
        """Repair what is known to be damaged, but for what a comparison judges at the moment."""

        async def mend(partition: Partition) -> None:
            if partition is not self._compared:
                await self.repair(partition)

        await self._each(mend)

    async def _each(self, task: Callable[[Partition], Awaitable[None]]) -> None:
        for partition in list(self._broker.partitions):
            try:
                await task(partition)
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
        while is_here(partition):
            sealed = describe(partition.log, segment)
            if sealed is None or done.position >= sealed.size:
                return
            before = done
            size = min(PIECE_BYTES, sealed.size - done.position)
            await asyncio.sleep(size / broker.config.penstock_scrub_bytes_per_second)
            try:
                done = await in_worker(scrub, broker.files, sealed, before, PIECE_BYTES)
            except FileNotFoundError:
                # Gone by retention or compaction; where it is not, reads will tell.
                return
            if not is_here(partition) or describe(partition.log, segment) != sealed:
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

    async def repair(self, partition: Partition) -> None:
        """Replace what is known to be damaged, by this scrubber or by recovery, as far as others have it."""
        for damage in list(partition.log.recovery.corruption):
            await repair_range(self._broker, partition, damage, others_in_sync(self._broker, partition))
