"""Looks for damage in sealed segments, and has it replaced with the bytes of a healthy replica.

Round after round every sealed segment of every replica here is read, in pieces, in a process of its own, at
`penstock.scrub.bytes.per.second`. What is damaged is reported, and from then on neither clients nor followers
get it, until it has been replaced (`repair`). Then the same segments are compared with other replicas'
(`comparison`), which finds what no checksum does. Beside the rounds what is known to be damaged, from one of
them or from recovery, is tried again every minute; and who cannot do without what is damaged, as coordinators
cannot, has it found and repaired at once (`mend`).

What is known to be damaged is in the manifest of a clean shutdown. After a crash the first round, which
begins soon after the start, finds it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.healing.compacted_repair import needs_renewal, renew_segment
from penstock.broker.healing.comparison import compare_replica
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.hole_filling import fill_hole
from penstock.broker.healing.repair import (
    PIECE_BYTES,
    Outcome,
    all_in_sync,
    has_other_replicas,
    is_here,
    others_in_sync,
    repair_range,
)
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import PenstockError
from penstock.storage.holes import (
    blocking_damage,
    describe_holes,
    find_lost_files,
    holes,
    is_hole,
    lose_segment,
)
from penstock.storage.recovery import Corruption
from penstock.storage.scrub import (
    Piece,
    describe,
    describe_as_is,
    note_damage,
    scrub,
    sealed_segments,
)
from penstock.storage.segment import LOG, Segment

__all__ = ["Scrubber"]

log = get_logger("scrubber")
#: How long a broker that has started is left alone: those that it serves and follows come first. And how soon
#: damage that is known is looked at again: who can mend it may be back.
_SETTLE_S: Final = 60.0
#: the pause before a repair is tried again, which doubles: the leader may not have been elected yet
_FIRST_REPAIR_PAUSE_S: Final = 0.1


class _Repair(NamedTuple):
    """The task that repairs a replica, and the event that ends the pause before its next attempt."""

    task: asyncio.Task[None]
    due: asyncio.Event


class Scrubber:
    """Scrubs and repairs the replicas of one broker from `start` to `stop`."""

    def __init__(
        self,
        env: RepairEnvironment,
        partitions: Partitions,
        review: Callable[[Iterable[Partition]], None],
    ) -> None:
        """`review` gives replicas their roles again after their damage has changed."""
        self._env = env
        self._partitions = partitions
        self._review = review
        self._tasks: list[asyncio.Task[None]] = []
        #: the replica that is being compared: what differs there is mended by a verdict, not by who has it
        self._compared: Partition | None = None
        #: of replicas that somebody waits for
        self._mending: dict[Partition, asyncio.Task[Outcome | None]] = {}
        #: of replicas that are repaired as soon as another replica can give what they lack
        self._repairing: dict[Partition, _Repair] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._scrub_in_rounds()), loop.create_task(self._mend_often())]

    async def stop(self) -> None:
        repairs = [repair.task for repair in self._repairing.values()]
        tasks = [*self._tasks, *self._mending.values(), *repairs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
        return self._env.config.penstock_scrub_interval_ms / 1000

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
                await compare_replica(self._env, partition)
            finally:
                self._compared = None

        await self._each(tend)

    async def mend_all(self) -> None:
        """Repair what is known to be damaged, but for what a comparison judges at the moment."""

        async def mend(partition: Partition) -> None:
            if partition is not self._compared:
                if partition.log.file_lost:
                    await self._find_lost_files(partition)
                await self.repair(partition)

        await self._each(mend)

    async def _each(self, task: Callable[[Partition], Awaitable[None]]) -> None:
        for partition in list(self._partitions):
            try:
                await task(partition)
            except (PenstockError, OSError) as e:
                log.error("scrub_failed", partition=partition.name, error=str(e))
            except Exception as e:
                log.error("scrub_failed", partition=partition.name, error=repr(e), exc_info=e)

    async def mend(self, partition: Partition) -> Outcome | None:
        """Find all that is damaged in a replica, and repair it, now; None if nothing is damaged.

        Whoever waits may give up. The task is not theirs: a segment that is being swapped must not be left.
        """
        task = self._mending.get(partition)
        if task is None:
            task = self._mending[partition] = asyncio.get_running_loop().create_task(self._mend(partition))
            task.add_done_callback(partial(self._mended, partition))
        return await asyncio.shield(task)

    def _mended(self, partition: Partition, task: asyncio.Task[Outcome | None]) -> None:
        del self._mending[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("scrub_failed", partition=partition.name, error=repr(error))

    async def _mend(self, partition: Partition) -> Outcome | None:
        for segment in list(partition.log.segments):
            await self._scrub_segment(partition, segment, at_once=True)
        return await self.repair(partition) if partition.log.recovery.corruption else None

    def repair_soon(self, partition: Partition) -> None:
        """Repair a follower that must not fetch before, or a leader with a hole, until that has succeeded.

        Called again, it tries at once: a replica that has joined the ISR may have what is missing.
        """
        repair = self._repairing.get(partition)
        if repair is not None:
            repair.due.set()
            return
        due = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._repair_until_done(partition, due))
        self._repairing[partition] = _Repair(task, due)
        task.add_done_callback(lambda _: self._repairing.pop(partition, None))

    async def _repair_until_done(self, partition: Partition, due: asyncio.Event) -> None:
        pause_s = _FIRST_REPAIR_PAUSE_S
        while is_here(partition) and blocking_damage(partition.log):
            due.clear()
            try:
                await self.repair(partition)
            except (PenstockError, OSError) as e:
                log.error("scrub_failed", partition=partition.name, error=str(e))
            try:
                async with asyncio.timeout(pause_s):
                    await due.wait()
                pause_s = _FIRST_REPAIR_PAUSE_S
            except TimeoutError:
                pause_s = min(2 * pause_s, _SETTLE_S)

    # -- finding

    async def scrub(self, partition: Partition) -> None:
        """Check every sealed segment of a replica, and that no segment file has vanished or shrunk."""
        await self._find_lost_files(partition)
        for segment in sealed_segments(partition.log):
            await self._scrub_segment(partition, segment)

    async def _scrub_segment(self, partition: Partition, segment: Segment, *, at_once: bool = False) -> None:
        """Check a segment: a sealed one at its pace, or any `at_once`."""
        env, done = self._env, Piece(0, 0)
        describe_now = describe_as_is if at_once else describe
        # Memory is seen by this process only.
        in_worker = env.workers.in_process if isinstance(env.files, OsFiles) else env.workers.in_thread
        while is_here(partition):
            sealed = describe_now(partition.log, segment)
            if sealed is None or done.position >= sealed.size:
                return
            before = done
            size = min(PIECE_BYTES, sealed.size - done.position)
            if not at_once:
                await asyncio.sleep(size / env.config.penstock_scrub_bytes_per_second)
            try:
                done = await in_worker(scrub, env.files, sealed, before, PIECE_BYTES)
            except FileNotFoundError:
                # Gone by retention or compaction; where it is not, reads will tell.
                return
            if not is_here(partition) or describe_now(partition.log, segment) != sealed:
                # What was read may have been changed while it was.
                return
            for damage in done.damage:
                self._found(partition, segment, damage)
            env.metrics.scrubbed_bytes += done.position - before.position

    async def _find_lost_files(self, partition: Partition) -> None:
        """Treat segment files that are gone, or shorter than they were, as damage."""
        partition.log.file_lost = False
        segments = list(partition.log.segments)
        sizes = [(segment.path(LOG), segment.size) for segment in segments]
        files, in_thread = self._env.files, self._env.workers.in_thread
        lost = set(await in_thread(find_lost_files, files, sizes))
        for segment in segments:
            opened = partition.log
            path = segment.path(LOG)
            # Retention and compaction take segments out of the log before their files go.
            if path not in lost or opened.segments.holding(segment.base_offset) is not segment:
                continue
            if not is_here(partition):
                return
            if not files.exists(path):
                damage = lose_segment(opened, segment)
                if damage is not None:
                    self._report(partition, damage)
            elif segment is opened.segments.active:
                # As a sealed one it is scrubbed.
                opened.roll()

    def _found(self, partition: Partition, segment: Segment, damage: Corruption) -> None:
        if damage in partition.log.recovery.corruption:
            return
        note_damage(partition.log, segment, damage)
        self._report(partition, damage)

    def _report(self, partition: Partition, damage: Corruption) -> None:
        self._env.metrics.corruption_found += 1
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
        if holes(partition.log) and has_other_replicas(self._env, partition):
            self._partitions.mark_unclean(partition.topic_id, partition.index, describe_holes(partition.log))
            self._review([partition])

    async def repair(self, partition: Partition) -> Outcome:
        """Replace what is known to be damaged, by this scrubber or by recovery, as far as others have it."""
        env, opened = self._env, partition.log
        outcomes = set()
        was_damaged = bool(blocking_damage(opened))
        for damage in list(opened.recovery.corruption):
            if is_hole(opened, damage):
                mend: Callable[..., Awaitable[Outcome]] = fill_hole
            else:
                mend = renew_segment if needs_renewal(partition, damage) else repair_range
            # Of the same moment: who comes back while the others are asked has not been asked.
            sources, complete = others_in_sync(env, partition), all_in_sync(env, partition)
            outcome = await mend(env, partition, damage, sources)
            outcomes.add(Outcome.WAITS if outcome is Outcome.LOST and not complete else outcome)
        if was_damaged and not blocking_damage(opened):
            self._review([partition])
        return next((o for o in (Outcome.WAITS, Outcome.LOST) if o in outcomes), Outcome.MENDED)
