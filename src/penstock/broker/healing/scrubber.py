"""Finds damage in sealed segments, and replaces it with the bytes of a healthy replica.

In each round every sealed segment of every replica of this broker is read, in pieces, in a separate process,
at `penstock.scrub.bytes.per.second`. Damaged ranges are logged. From then on neither clients nor followers
are served these ranges until they have been replaced (`repair`). Then the same segments are compared with
other replicas (`comparison`), which finds damage that no checksum shows, and those of an earlier version of
the encryption are converted (`segment_upgrade`). Beside the rounds, the repair of
known damage is retried every minute. Coordinators cannot load a damaged log, so `scrub_and_repair` finds and
repairs the damage of one replica at once.

A clean shutdown writes the known damage to its manifest. After a crash the first round finds it again, soon
after the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from penstock.broker.base.encrypted_disks import is_on_disk, watch_damage
from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.healing.compacted_repair import needs_rewrite, rewrite_segment
from penstock.broker.healing.comparison import compare_replica
from penstock.broker.healing.derived_state import check_derived_state
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.hole_filling import fill_hole
from penstock.broker.healing.log_starts import examine_log_start
from penstock.broker.healing.repair import (
    PIECE_BYTES,
    Outcome,
    all_in_sync,
    has_other_replicas,
    others_in_sync,
    repair_range,
)
from penstock.broker.healing.segment_upgrade import roll_outdated, upgrade_segments
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
from penstock.storage.recovery_report import Corruption
from penstock.storage.scrub import (
    Piece,
    describe,
    describe_as_is,
    exchanged_segment,
    note_damage,
    scrub,
    sealed_segments,
)
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG
from penstock.storage.segments import NO_OFFSETS

__all__ = ["Scrubber"]

log = get_logger("scrubber")
#: The pause after the start, in which clients and replication have priority. Also the pause between repairs
#: of known damage: a replica that has the range may be reachable again.
_SETTLE_S: Final = 60.0
#: the pause before the first retry of a repair, doubled at each retry: the leader may not be elected yet
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
        """`review` assigns replicas their roles again after their damage has changed."""
        self._env = env
        self._partitions = partitions
        self._review = review
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        #: the replica that is being compared: only the comparison may repair it, from healthy replicas
        self._compared: Partition | None = None
        #: the tasks of `scrub_and_repair`
        self._scrubbing: dict[Partition, asyncio.Task[Outcome | None]] = {}
        #: the tasks of `repair_soon`
        self._repairing: dict[Partition, _Repair] = {}

    def start(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        watch_damage(self._env.files, self.damage_found)
        self._tasks = [loop.create_task(self._scrub_in_rounds()), loop.create_task(self._repair_in_rounds())]

    async def stop(self) -> None:
        self._loop = None
        repairs = [repair.task for repair in self._repairing.values()]
        tasks = [*self._tasks, *self._scrubbing.values(), *repairs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _scrub_in_rounds(self) -> None:
        await asyncio.sleep(self._pause_s)
        while True:
            await self.scrub_all()
            await asyncio.sleep(self._interval_s)

    async def _repair_in_rounds(self) -> None:
        """Repair known damage beside the rounds: one round may take a day.

        Every repair checks before each write that the range is still damaged, so two tasks may run at once.
        """
        while True:
            await asyncio.sleep(self._pause_s)
            await self.repair_all()

    @property
    def _interval_s(self) -> float:
        return self._env.config.penstock_scrub_interval_ms / 1000

    @property
    def _pause_s(self) -> float:
        return min(_SETTLE_S, self._interval_s)

    async def scrub_all(self) -> None:
        """Run one round over all replicas of this broker."""

        async def check(partition: Partition) -> None:
            await roll_outdated(self._env, partition)
            await self.scrub(partition)
            await self.repair(partition)
            self._compared = partition
            try:
                await compare_replica(self._env, partition)
            finally:
                self._compared = None
            await check_derived_state(self._env, partition)
            await upgrade_segments(self._env, partition)

        await self._each(check)

    async def repair_all(self) -> None:
        """Repair all known damage, except that of the replica that is being compared."""

        async def repair(partition: Partition) -> None:
            if partition is not self._compared:
                if partition.log.file_lost:
                    await self._find_lost_files(partition)
                await self._check_suspects(partition)
                missing = await examine_log_start(self._env, partition)
                if missing is not None:
                    self._report(partition, missing)
                await self.repair(partition)

        await self._each(repair)

    async def _each(self, task: Callable[[Partition], Awaitable[None]]) -> None:
        for partition in list(self._partitions):
            try:
                await task(partition)
            except (PenstockError, OSError) as e:
                log.error("scrub_failed", partition=partition.name, error=str(e))
            except Exception as e:
                log.error("scrub_failed", partition=partition.name, error=repr(e), exc_info=e)

    async def scrub_and_repair(self, partition: Partition) -> Outcome | None:
        """Find all damage of a replica and repair it now; None if there is none.

        The repair goes on if the caller is cancelled: a segment swap must not be interrupted.
        """
        task = self._scrubbing.get(partition)
        if task is None:
            task = self._scrubbing[partition] = asyncio.get_running_loop().create_task(
                self._scrub_and_repair(partition)
            )
            task.add_done_callback(partial(self._repair_ended, partition))
        return await asyncio.shield(task)

    def _repair_ended(self, partition: Partition, task: asyncio.Task[Outcome | None]) -> None:
        del self._scrubbing[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("scrub_failed", partition=partition.name, error=repr(error))

    async def _scrub_and_repair(self, partition: Partition) -> Outcome | None:
        for segment in list(partition.log.segments):
            await self._scrub_segment(partition, segment, at_once=True)
        return await self.repair(partition) if partition.log.recovery.corruption else None

    def damage_found(self, path: str) -> None:
        """Check a segment soon, because a read has found that its file is not authentic. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._check_soon, path)

    def _check_soon(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        for partition in self._partitions:
            if partition.log.path == directory and partition not in self._scrubbing:
                segments = [each for each in partition.log.segments if each.path(LOG) == path]
                if segments and not segments[0].damage:
                    task = asyncio.get_running_loop().create_task(self._check(partition, segments[0]))
                    self._scrubbing[partition] = task
                    task.add_done_callback(partial(self._repair_ended, partition))

    async def _check(self, partition: Partition, segment: Segment) -> Outcome | None:
        await self._scrub_segment(partition, segment, at_once=True)
        return await self.repair(partition) if partition.log.recovery.corruption else None

    def repair_soon(self, partition: Partition) -> None:
        """Repair a replica that cannot serve its role before, and retry until the repair succeeds.

        That is a follower that must not fetch, or a leader with a hole. A second call retries at once: a
        replica that has joined the ISR may have the missing range.
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
        while partition.is_online and blocking_damage(partition.log):
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
        """Check a segment: a sealed segment at the configured rate, or any segment `at_once`."""
        env, done = self._env, Piece(0, 0)
        describe_now = describe_as_is if at_once else describe
        # Another process can read real files only, not the files in memory that tests use.
        in_worker = env.workers.in_process if is_on_disk(env.files) else env.workers.in_thread
        while partition.is_online:
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
                # Retention or compaction deleted it. If the file was lost, `_find_lost_files` finds that.
                return
            if not partition.is_online or describe_now(partition.log, segment) != sealed:
                # The segment may have changed during the read.
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
            # Retention and compaction remove segments from the log before they delete the files.
            if path not in lost or opened.segments.holding(segment.base_offset) is not segment:
                continue
            if not partition.is_online:
                return
            if not files.exists(path):
                damage = lose_segment(opened, segment)
                if damage is not None:
                    self._report(partition, damage)
            elif segment is opened.segments.active:
                # Only sealed segments are scrubbed.
                opened.roll()

    async def _check_suspects(self, partition: Partition) -> None:
        """Check segments in which reads have found batches that do not belong there.

        All batches of a segment are damaged if they are not the sealed ones, as after an exchange of two
        files. If batches did not follow each other and are sound, the index is not: it is rebuilt.
        """
        segments = partition.log.segments
        exchanged, segments.exchanged = segments.exchanged, NO_OFFSETS
        broken, segments.broken = segments.broken, NO_OFFSETS
        for base_offset in sorted(exchanged):
            segment = segments.holding(base_offset)
            sealed = describe(partition.log, segment)
            if sealed is not None and segment.base_offset == base_offset:
                self._found(partition, segment, exchanged_segment(sealed))
        for base_offset in sorted(broken - exchanged):
            segment = segments.holding(base_offset)
            if segment.base_offset != base_offset:
                continue
            await self._scrub_segment(partition, segment, at_once=True)
            if partition.is_online and not segment.damage:
                await retry_when_cached(partition, self._env.workers, partial(segment.distrust_indexes, True))

    def _found(self, partition: Partition, segment: Segment, damage: Corruption) -> None:
        if damage in partition.log.recovery.corruption:
            return
        self._report(partition, note_damage(partition.log, segment, damage))

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
        """Replace the damage that this scrubber or recovery found, as far as other replicas have it."""
        env, opened = self._env, partition.log
        outcomes = set()
        was_damaged = bool(blocking_damage(opened))
        for damage in list(opened.recovery.corruption):
            if is_hole(opened, damage):
                repair_damage: Callable[..., Awaitable[Outcome]] = fill_hole
            else:
                repair_damage = rewrite_segment if needs_rewrite(partition, damage) else repair_range
            # Both at the same moment: a replica that returns during the repair was not among its sources.
            sources, complete = others_in_sync(env, partition), all_in_sync(env, partition)
            outcome = await repair_damage(env, partition, damage, sources)
            outcomes.add(Outcome.WAITS if outcome is Outcome.LOST and not complete else outcome)
        if was_damaged and not blocking_damage(opened):
            self._review([partition])
        return next((o for o in (Outcome.WAITS, Outcome.LOST) if o in outcomes), Outcome.REPAIRED)
