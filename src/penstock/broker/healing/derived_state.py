"""Compares transaction indexes and producers of a replica with its batches, and replaces those that differ.

The comparison of replicas (`comparison`) makes the batches of all replicas equal. Transaction indexes and
producers are derived from the batches, so they are equal, too, if each replica agrees with its own batches.
No replica has to be asked, and no majority is needed.

Segments that have no seal are sealed afterwards: those of earlier releases, and those whose files a repair
has replaced. Compacted topics are skipped: compaction removes the records of aborted transactions, and swaps
segments meanwhile.
"""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment, sync_files
from penstock.broker.replica.partition import Partition
from penstock.ports import Files
from penstock.storage.index_proofs import ended_segments, has_transactions
from penstock.storage.sealing import EndedSegment, expect_seals, read_seal, seal_again
from penstock.storage.seals import LogOwner
from penstock.storage.segment import Segment
from penstock.storage.transaction_rebuild import TransactionRebuild

__all__ = ["check_derived_state"]

log = get_logger("scrubber")


async def check_derived_state(env: RepairEnvironment, partition: Partition) -> None:
    """Check one replica, as part of a round of the scrubber."""
    opened = partition.log
    if opened.config.compact or opened.recovery.corruption:
        return
    try:
        if has_transactions(opened):
            await _check_transactions(env, partition)
        first = opened.segments.first.base_offset
        ended = await env.workers.in_thread(_unsealed, env.files, opened.owner, ended_segments(opened, first))
        expect_seals(opened.segments, await env.workers.in_thread(seal_again, env.files, opened.owner, ended))
    except FileNotFoundError as e:
        # Retention has removed a segment. The next round tries again.
        log.debug("not_compared", partition=partition.name, error=str(e))


async def _check_transactions(env: RepairEnvironment, partition: Partition) -> None:
    opened, in_thread = partition.log, env.workers.in_thread
    rebuild = TransactionRebuild(opened, env.files, opened.segments.first.base_offset, None)
    while True:
        await in_thread(rebuild.replay, rebuild.remaining(opened), rebuild.before(opened))
        if not partition.is_online or not rebuild.is_current(opened):
            await in_thread(rebuild.abandon)
            return
        if rebuild.is_close(opened):
            break
    if not rebuild.differs(opened):
        await in_thread(rebuild.abandon)
        return
    env.metrics.differences_found += 1
    log.error("transactions_rebuilt", partition=partition.name, first_offset=rebuild.first_offset)
    await sync_files(env, partition, rebuild.install(opened))
    ended = ended_segments(opened, rebuild.first_offset)
    expect_seals(opened.segments, await in_thread(seal_again, env.files, opened.owner, ended))
    await in_thread(env.files.sync_dir, opened.path)


def _unsealed(files: Files, owner: LogOwner, ended: list[EndedSegment]) -> list[EndedSegment]:
    """The segments without a seal of their own. Reads the disk."""
    return [
        each
        for each in ended
        if read_seal(files, Segment(files, each.directory, each.base_offset, each.size, 0), owner) is None
    ]
