"""Examines log starts that nothing explains, by asking the other replicas for theirs.

A log whose recorded start was lost begins at its first segment, and segments before it may have been lost,
too. Its followers do not adopt such a log start. If another replica has records before it, they are missing
here: a hole, which is filled from that replica. If no replica has any, none can be lost. With tiered storage
the archive may have some, and explains the log start (`broker.app.local_retention`).
"""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.repair import other_replicas, replica_log_info
from penstock.broker.replica.partition import Partition
from penstock.model.errors import PenstockError
from penstock.storage.holes import begin_earlier
from penstock.storage.recovery_report import Corruption

__all__ = ["examine_log_start"]

log = get_logger("scrubber")


async def examine_log_start(env: RepairEnvironment, partition: Partition) -> Corruption | None:
    """Explain the log start of a replica; returns the hole before its first segment if there is one.

    The log start stays unexplained while a replica does not respond.
    """
    opened = partition.log
    if opened.explained_start >= opened.log_start_offset:
        return None
    starts: list[int] = []
    is_complete = True
    for replica in other_replicas(env, partition):
        try:
            info = await replica_log_info(env, partition, replica)
        except PenstockError as e:
            log.info("log_start_not_examined", partition=partition.name, source=replica, error=str(e))
            is_complete = False
            continue
        # A new replica is empty. One that ends before our log start is reset or set aside.
        if info.log_start_offset < opened.log_start_offset <= info.log_end_offset:
            starts.append(info.log_start_offset)
    start = max(min(starts, default=opened.log_start_offset), opened.explained_start)
    if not partition.is_online or opened.explained_start >= opened.log_start_offset:
        return None
    if start < opened.log_start_offset:
        return begin_earlier(opened, start)
    if is_complete and not opened.config.remote_storage_enable:
        log.info("log_start_explained", partition=partition.name, log_start_offset=start)
        partition.advance_log_start(start)
    return None
