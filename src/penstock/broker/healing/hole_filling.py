"""Fills holes of a replica (offsets that no segment has) with the batches of a complete replica.

The missing range is fetched from the leader or another in-sync replica, like a consumer fetches, and written
into new segments. The segments are swapped in once all of them are on disk. The log around the hole stays
unchanged.

A follower with a hole does not fetch meanwhile: it would rejoin the ISR and could be elected leader without
the missing records.

Invariant: a hole is closed only by batches that cover it from its first to its last offset, or because the
leader's log starts after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.broker.base.awaiting import uninterrupted
from penstock.broker.base.logs import get_logger
from penstock.broker.healing.compacted_repair import within_gaps
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.repair import (
    Outcome,
    leader_of,
    log_repaired,
    read_replica,
    replica_log_info,
    try_each,
)
from penstock.broker.healing.transaction_repair import RepairedBytes, rebuild_transactions
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.replication.digest import leading_batches
from penstock.storage.hole_filling import HoleFilling
from penstock.storage.holes import is_hole
from penstock.storage.recovery_report import Corruption
from penstock.storage.segment_files import LOG, file_name
from penstock.storage.swap import Swap
from penstock.storage.swapping import swap_in
from penstock.storage.validation import check_replicated

__all__ = ["fill_hole"]

log = get_logger("scrubber")


async def fill_hole(
    env: RepairEnvironment, partition: Partition, hole: Corruption, sources: Sequence[int]
) -> Outcome:
    """Fetch the offsets of a hole from the first of `sources` that has them."""
    if not sources:
        return Outcome.LOST
    async with partition.rewriting:
        opened = partition.log
        if hole not in opened.recovery.corruption:
            return Outcome.REPAIRED
        if not partition.is_online or not is_hole(opened, hole):
            return Outcome.WAITS
        leader = leader_of(env, partition)
        if hole.next_offset > opened.high_watermark:
            # Above the high watermark only the leader's log is authoritative.
            sources = [source for source in sources if source == leader]
        if not sources:
            return Outcome.WAITS
        return await _Filling(env, partition, hole, sources, leader).run()


class _Filling:
    """The filling of one hole."""

    __slots__ = ("_env", "_gaps_allowed", "_hole", "_leader", "_new", "_partition", "_source", "_sources")

    def __init__(
        self,
        env: RepairEnvironment,
        partition: Partition,
        hole: Corruption,
        sources: Sequence[int],
        leader: int,
    ) -> None:
        self._env = env
        self._partition = partition
        self._hole = hole
        self._sources = sources
        #: the replica that the batches came from
        self._source = -1
        self._leader = leader
        segments = partition.log.segments
        before = segments.holding(hole.first_offset)
        self._gaps_allowed = partition.log.config.compact or before.is_compacted
        self._new = HoleFilling(
            env.files,
            partition.log.path,
            hole,
            [(each.base_offset, each.size) for each in segments if each.base_offset < hole.first_offset],
            partition.log.config,
            self._gaps_allowed,
            env.clock.now_ms(),
            partition.log.owner,
        )

    async def run(self) -> Outcome:
        opened, in_thread = self._partition.log, self._env.workers.in_thread
        swap = opened.swap(self._replaced())
        try:
            outcome = await try_each(self._partition, self._sources, self._copy)
            if outcome is Outcome.REPAIRED and self._is_there():
                replaced = self._replaced()
                new = await in_thread(self._new.finish, replaced)
                if await uninterrupted(self._swap_in(swap, replaced, new)):
                    return Outcome.REPAIRED
                outcome = Outcome.WAITS
        except OSError as e:
            error = self._partition.health.failed(e, f"cannot fill a hole of {opened.path}")
            log.warning("repair_failed", partition=self._partition.name, error=str(error))
            outcome = Outcome.WAITS
        await in_thread(swap.abandon)
        return Outcome.REPAIRED if self._hole not in opened.recovery.corruption else outcome

    async def _swap_in(self, swap: Swap, replaced: list[int], new: list[tuple[int, int]]) -> bool:
        """Add the new segments to the log; false if the log has changed too much meanwhile."""

        def is_wanted() -> bool:
            return self._is_there() and self._replaced() == replaced

        opened, workers = self._partition.log, self._env.workers
        if not await swap_in(opened, swap, replaced, new, workers, is_wanted):
            return False
        await self._filled(new)
        return True

    def _replaced(self) -> list[int]:
        """The base offset of an empty segment at the start of the hole: a new segment takes its file name."""
        segment = self._partition.log.segments.holding(self._hole.first_offset)
        return [segment.base_offset] if segment.base_offset == self._hole.first_offset else []

    async def _filled(self, new: Iterable[tuple[int, int]]) -> None:
        """Remove the hole from the log's known damage, and the partial batch before it from the file.

        `new` has the base offset and size of each new segment.
        """
        opened, hole = self._partition.log, self._hole
        written = [RepairedBytes(f"{opened.path}/{file_name(base)}{LOG}", 0, size) for base, size in new]
        await rebuild_transactions(self._env, self._partition, hole, written)
        opened.recovery.replaced(hole)
        before = opened.segments.holding(hole.first_offset - 1)
        if before.base_offset < hole.first_offset:
            before.damage = [damage for damage in before.damage if damage.end <= before.size]
            file = before.open_file()
            if file.size() > before.size:
                # After the last complete batch the file has a part of a batch that the new segment contains.
                file.truncate(before.size)
                await self._env.workers.in_thread(file.sync)
        log_repaired(self._env, self._partition, hole._replace(size=self._new.size), self._source)

    async def _copy(self, replica: int) -> bool:
        """Write the batches that `replica` has of the hole; False if the hole no longer exists."""
        opened, hole, in_thread = self._partition.log, self._hole, self._env.workers.in_thread
        await in_thread(self._new.restart)
        offset = hole.first_offset
        while offset < hole.next_offset:
            if not self._is_there():
                return False
            # Records before the log start offset are deleted: no replica serves them.
            start = max(offset, opened.log_start_offset)
            try:
                fetched = await read_replica(self._env, self._partition, start, replica)
            except ApiError as e:
                if e.code != ErrorCode.OFFSET_OUT_OF_RANGE or replica != self._leader:
                    raise
                if not await self._follow_start(start):
                    raise
                continue
            size, offset = self._within(fetched, offset)
            await in_thread(self._new.add, fetched[:size])
        self._source = replica
        return True

    async def _follow_start(self, offset: int) -> bool:
        """Advance the log start offset to the leader's if that is above `offset`; whether it was.

        Nothing is given up for a leader's log start that nothing explains.
        """
        opened = self._partition.log
        info = await replica_log_info(self._env, self._partition, self._leader)
        start = min(info.explained_start_offset, opened.high_watermark)
        if start <= offset:
            return False
        opened.delete_records(start)
        return True

    def _within(self, fetched: memoryview, offset: int) -> tuple[int, int]:
        """(bytes of the leading batches that belong into the hole, the offset after them)."""
        end = self._hole.next_offset
        if self._gaps_allowed:
            return within_gaps(fetched, offset, end)
        size, _ = leading_batches(fetched, end)
        is_first = offset == self._hole.first_offset
        for header in check_replicated(fetched[:size]):
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            # The log may start within its first batch.
            starts_within = is_first and header[BASE_OFFSET] <= offset < next_offset
            if (header[BASE_OFFSET] != offset and not starts_within) or next_offset > end:
                raise CorruptMessage(f"a batch at offset {header[BASE_OFFSET]} where {offset} should be")
            offset, is_first = next_offset, False
        if not size:
            raise CorruptMessage(f"no whole batch at offset {offset}")
        return size, offset

    def _is_there(self) -> bool:
        """Whether the hole still exists."""
        return self._partition.is_online and self._hole in self._partition.log.recovery.corruption
