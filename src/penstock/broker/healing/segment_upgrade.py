"""Converts sealed segments from an earlier version of the encryption while the broker runs.

The scrubber does it as the last step of a replica, so that segments have been checked: a conversion makes
their content authentic. A segment that cannot take appends, because of its version, is rolled before that.
`encrypted_disks` converts the small files that are left at a start, and then `meta.json`.

Invariant: one task at a time rewrites the segments of a log (`Partition.rewriting`).
"""

from __future__ import annotations

from penstock.broker.base.awaiting import uninterrupted
from penstock.broker.base.encrypted_disks import is_on_disk, paced
from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.replica.partition import Partition
from penstock.storage.scrub import sealed_segments
from penstock.storage.segment import Segment
from penstock.storage.segment_copy import copy_segment, outdated_segments
from penstock.storage.segment_files import LOG
from penstock.storage.swapping import swap_in

__all__ = ["roll_outdated", "upgrade_segments"]

log = get_logger("scrubber")


async def roll_outdated(env: RepairEnvironment, partition: Partition) -> None:
    """Seal the last segment if it takes no appends: an idle partition would keep it for ever."""
    active = partition.log.segments.active
    if not active.size or await env.workers.in_thread(env.files.takes_appends, active.path(LOG)):
        return
    if partition.is_online and active is partition.log.segments.active:
        partition.log.roll()


async def upgrade_segments(env: RepairEnvironment, partition: Partition) -> None:
    """Convert the sealed segments of a replica, at the rate of the scrubber."""
    opened = partition.log
    bases = [segment.base_offset for segment in sealed_segments(opened)]
    for base_offset in await env.workers.in_thread(outdated_segments, env.files, opened.path, bases):
        async with partition.rewriting:
            segment = opened.segments.holding(base_offset)
            is_sealed = segment.base_offset == base_offset and segment is not opened.segments.active
            if not partition.is_online or opened.recovery.corruption or not is_sealed:
                return
            if not await _upgrade(env, partition, segment):
                return
        log.info("segment_converted", partition=partition.name, base_offset=base_offset, bytes=segment.size)


async def _upgrade(env: RepairEnvironment, partition: Partition, segment: Segment) -> bool:
    """Replace one segment; false if the log has changed meanwhile."""
    opened, workers, size = partition.log, env.workers, segment.size
    rate = env.config.penstock_scrub_bytes_per_second
    swap = opened.swap([segment.base_offset])
    # The copy costs the loop's process nothing on a disk; files in memory, which tests use, it cannot share.
    in_worker = workers.in_process if is_on_disk(env.files) else workers.in_thread
    try:
        await in_worker(copy_segment, paced(env.files, rate), opened.path, segment.base_offset, size)
    except OSError:
        if partition.is_online:
            await workers.in_thread(swap.abandon)
        raise

    def is_wanted() -> bool:
        return (
            partition.is_online
            and opened.segments.holding(segment.base_offset) is segment
            and segment is not opened.segments.active
            and segment.size == size
            and not opened.recovery.corruption
        )

    if not is_wanted():
        await workers.in_thread(swap.abandon)
        return False
    new = [(segment.base_offset, size)]
    return await uninterrupted(swap_in(opened, swap, [segment.base_offset], new, workers, is_wanted))
