"""Rewrites damaged segments of compacted logs with the batches of healthy replicas.

Each replica compacts its log on its own, so a healthy replica may have more or fewer records of a damaged
range than this replica had. Both are correct: a later record, which this replica has, supersedes every record
that only one of the two has. The exception is the same as between any two replicas: if compaction on one of
them lags by more than `delete.retention.ms`, the tombstone of a key may be gone already.

Invariants: either all damaged ranges of a segment are replaced, by batches with valid checksums, or none is.
One task at a time rewrites the segments of a log (`Partition.rewriting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker.base.awaiting import uninterrupted
from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.repair import (
    Outcome,
    log_repaired,
    read_replica,
    try_each,
)
from penstock.broker.healing.transaction_repair import RepairedBytes, rebuild_transactions
from penstock.broker.replica.partition import Partition
from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.replication.digest import leading_batches
from penstock.storage.compacted_repair import SegmentRewrite
from penstock.storage.recovery_report import Corruption
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG
from penstock.storage.swap import Swap
from penstock.storage.swapping import swap_in
from penstock.storage.validation import check_replicated

__all__ = ["needs_rewrite", "rewrite_segment", "within_gaps"]

log = get_logger("scrubber")
#: batches after a range whose offsets must rise for the end of the range to count as found
_LOOK_AHEAD: Final = 2


def needs_rewrite(partition: Partition, damage: Corruption) -> bool:
    """Whether the batches of another replica may differ in size from the damaged range of a compacted log."""
    opened = partition.log
    return opened.config.compact or opened.segments.holding(damage.first_offset).is_compacted


async def rewrite_segment(
    env: RepairEnvironment, partition: Partition, damage: Corruption, sources: Sequence[int]
) -> Outcome:
    """Rewrite the segment that contains `damage`, with all of its damaged ranges replaced."""
    if not sources:
        return Outcome.LOST
    async with partition.rewriting:
        opened = partition.log
        if damage not in opened.recovery.corruption:
            return Outcome.REPAIRED
        segment = opened.segments.holding(damage.first_offset)
        damages = [each for each in opened.recovery.corruption if each.path == segment.path(LOG)]
        if (
            not partition.is_online
            or damage not in damages
            or damages[-1].next_offset > opened.high_watermark
        ):
            return Outcome.WAITS
        if segment is opened.segments.active:
            opened.roll()
        return await _SegmentRewrite(env, partition, segment, damages, sources).run()


class _SegmentRewrite:
    """The rewrite of one segment."""

    __slots__ = ("_damages", "_env", "_given_by", "_partition", "_segment", "_size", "_sources")

    def __init__(
        self,
        env: RepairEnvironment,
        partition: Partition,
        segment: Segment,
        damages: Sequence[Corruption],
        sources: Sequence[int],
    ) -> None:
        self._env = env
        self._partition = partition
        self._segment = segment
        self._size = segment.size
        self._damages = damages
        self._sources = sources
        #: the replica that the batches of each damaged range came from
        self._given_by: dict[Corruption, int] = {}

    async def run(self) -> Outcome:
        swap = self._partition.log.swap([self._segment.base_offset])
        outcome, size = await self._write()
        if outcome is Outcome.REPAIRED:
            return Outcome.REPAIRED if await uninterrupted(self._swap_in(swap, size)) else Outcome.WAITS
        await self._env.workers.in_thread(swap.abandon)
        return outcome

    async def _swap_in(self, swap: Swap, size: int) -> bool:
        """Replace the segment by the new one, of `size` bytes; false if the log has changed meanwhile."""
        opened, base_offset = self._partition.log, self._segment.base_offset
        new = [(base_offset, size)]
        if not await swap_in(opened, swap, [base_offset], new, self._env.workers, self._is_there):
            return False
        await self._rebuild_transactions(size)
        for damage, replica in self._given_by.items():
            opened.recovery.replaced(damage)
            log_repaired(self._env, self._partition, damage, replica)
        return True

    async def _rebuild_transactions(self, size: int) -> None:
        written = RepairedBytes(self._segment.path(LOG), 0, size)
        await rebuild_transactions(self._env, self._partition, self._damages[0], [written])

    async def _write(self) -> tuple[Outcome, int]:
        """Write the new segment to disk; returns the outcome and the segment's size."""
        env, opened = self._env, self._partition.log
        in_thread = env.workers.in_thread
        try:
            rewrite = await in_thread(SegmentRewrite, env.files, opened.path, self._segment)
            outcome = await self._fill(rewrite)
            if outcome is Outcome.REPAIRED:
                following = opened.segments.after(self._segment)
                assert following is not None, "a segment to renew is sealed"
                interval, now_ms = opened.config.index_interval_bytes, env.clock.now_ms()
                await in_thread(rewrite.finish, interval, now_ms, following.base_offset)
        except OSError as e:
            error = self._partition.health.failed(e, f"cannot renew {self._segment.path(LOG)}")
            log.warning("repair_failed", partition=self._partition.name, error=str(error))
            return Outcome.WAITS, 0
        return outcome, rewrite.size

    async def _fill(self, rewrite: SegmentRewrite) -> Outcome:
        """Write the healthy ranges from the old segment and the damaged ranges from other replicas."""
        in_thread, position = self._env.workers.in_thread, 0
        for damage in self._damages:
            await in_thread(rewrite.keep, position, damage.position)
            position = damage.position + damage.size
            outcome = await self._add_range(rewrite, damage)
            if outcome is not Outcome.REPAIRED:
                return outcome
        await in_thread(rewrite.keep, position, self._size)
        return Outcome.REPAIRED

    async def _add_range(self, rewrite: SegmentRewrite, damage: Corruption) -> Outcome:
        start = rewrite.size

        async def copy(replica: int) -> bool:
            await self._env.workers.in_thread(rewrite.rewind, start)
            await self._copy(rewrite, damage, replica)
            self._given_by[damage] = replica
            return True

        return await try_each(self._partition, self._sources, copy)

    async def _copy(self, rewrite: SegmentRewrite, damage: Corruption, replica: int) -> None:
        """Append the batches that `replica` has of a damaged range."""
        offset = damage.first_offset
        while offset < damage.next_offset:
            # Records before the log start offset are deleted: no replica serves them.
            start = max(offset, self._partition.log.log_start_offset)
            fetched = await read_replica(self._env, self._partition, start, replica)
            size, offset = within_gaps(fetched, offset, damage.next_offset)
            await self._env.workers.in_thread(rewrite.add, fetched[:size])

    def _is_there(self) -> bool:
        """Whether the log still has the segment unchanged: retention may have deleted it meanwhile."""
        segments = self._partition.log.segments
        return (
            self._partition.is_online
            and segments.holding(self._segment.base_offset) is self._segment
            and self._segment.size == self._size
        )


def within_gaps(fetched: memoryview, offset: int, end: int) -> tuple[int, int]:
    """The size of the complete, valid batches from `offset` to before `end`, and the next offset to fetch.

    The next offset is `end` once a batch at or after `end` was seen: the range is complete then.
    """
    size, _ = leading_batches(fetched, end)
    for fields in check_replicated(fetched[:size]):
        if fields[BASE_OFFSET] < offset or fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] >= end:
            raise CorruptMessage(f"a batch at offset {fields[BASE_OFFSET]}, between {offset} and {end}")
        offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] + 1
    behind = _next_headers(fetched[size:])
    # No checksum covers the base offset of a batch. Rising offsets are the only check there is.
    for header, least in zip(behind, (offset, *(header.next_offset for header in behind)), strict=False):
        if header.base_offset < least:
            raise CorruptMessage(f"a batch at offset {header.base_offset} behind {least}")
    if behind and behind[0].base_offset >= end:
        return size, end
    if not size:
        raise CorruptMessage(f"no whole batch at offset {offset}")
    return size, offset


def _next_headers(batches: memoryview) -> list[BatchHeader]:
    """The headers of the next two batches, fewer if `batches` ends before."""
    headers: list[BatchHeader] = []
    position = 0
    while len(headers) < _LOOK_AHEAD and position + HEADER_SIZE <= len(batches):
        headers.append(read_header(batches, position))
        position += max(headers[-1].size, HEADER_SIZE)
    return headers
