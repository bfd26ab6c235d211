"""Rebuilds the transactions of a replica after a repair, before the repaired range is served.

See `storage.transaction_rebuild` for the reason. The log is replayed in a worker thread while the leader or
the follower fetcher appends to it. The caller holds the lock of rewrites of the log, so that compaction does
not replace segments meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment, sync_files
from penstock.broker.replica.partition import Partition
from penstock.storage.index_proofs import ended_segments
from penstock.storage.recovery_report import Corruption
from penstock.storage.sealing import expect_seals, seal_again
from penstock.storage.transaction_rebuild import TransactionRebuild, has_lost_batches, producer_ends

__all__ = ["RepairedBytes", "rebuild_transactions"]

log = get_logger("scrubber")


class RepairedBytes(NamedTuple):
    """A repaired range of a segment file."""

    path: str
    position: int
    end: int


async def rebuild_transactions(
    env: RepairEnvironment,
    partition: Partition,
    damage: Corruption,
    repaired: Iterable[RepairedBytes],
    *,
    in_place: bool = False,
) -> None:
    """Rebuild producers and transaction indexes from `damage` on, if the `repaired` bytes concern them.

    `in_place` means that the log still lists the damage, at the same position.
    """
    opened, in_thread = partition.log, env.workers.in_thread
    ends = producer_ends(opened)
    try:
        for each in repaired:
            if await in_thread(has_lost_batches, env.files, *each, ends):
                break
        else:
            return
        while partition.is_online and damage.first_offset < opened.end_offset:
            rebuild = TransactionRebuild(opened, env.files, damage.first_offset, damage if in_place else None)
            if await _run(env, partition, rebuild):
                log.info("transactions_rebuilt", partition=partition.name, first_offset=damage.first_offset)
                return
    except OSError as e:
        raise partition.health.failed(e, f"cannot index {opened.path}") from e


async def _run(env: RepairEnvironment, partition: Partition, rebuild: TransactionRebuild) -> bool:
    """Returns false if the log was truncated meanwhile."""
    opened, in_thread = partition.log, env.workers.in_thread
    is_behind = True
    while is_behind:
        await in_thread(rebuild.replay, rebuild.remaining(opened), rebuild.before(opened))
        if not rebuild.is_current(opened) or not partition.is_online:
            await in_thread(rebuild.abandon)
            return False
        is_behind = not rebuild.is_close(opened)
    await sync_files(env, partition, rebuild.install(opened))
    ended = ended_segments(opened, rebuild.first_offset)
    expect_seals(opened.segments, await in_thread(seal_again, env.files, opened.owner, ended))
    await in_thread(env.files.sync_dir, opened.path)
    return True
