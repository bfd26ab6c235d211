"""The commit of what a leader has appended: whether there can be one, and waiting for it.

An append is committed when all in-sync replicas have it, and the disk if acknowledgements wait for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, StorageError

__all__ = ["Done", "check_enough_replicas", "committed", "knows_latest_offset", "when_committed"]

#: receives NONE once the append is committed, or the error
Done: TypeAlias = Callable[[ErrorCode], None]


def check_enough_replicas(partition: Partition) -> None:
    """Before an append that has to be committed: raise NotEnoughReplicas if it could not be."""
    if partition.leadership is not None:
        partition.leadership.check_enough_replicas()


def when_committed(partition: Partition, end_offset: int, done: Done) -> None:
    """Call `done` when everything below `end_offset`, which was just appended, is committed."""
    leadership = partition.leadership

    def synced(error: StorageError | None) -> None:
        if error is not None:
            done(error.code)
        elif leadership is None:
            done(ErrorCode.NONE)
        else:
            leadership.when_committed(end_offset, done)

    if partition.sync.acks_wait:
        partition.sync.flusher.when_flushed(synced)
    else:
        synced(None)


async def committed(partition: Partition, end_offset: int) -> None:
    """Return when everything below `end_offset`, just appended, is committed. Raises ApiError."""
    leadership = partition.leadership
    if partition.sync.acks_wait:
        await partition.sync.flusher.flush()
    if leadership is not None:
        await leadership.committed(end_offset)


def knows_latest_offset(partition: Partition) -> bool:
    """Returns false while a new leader has yet to commit again what was committed before its election."""
    return partition.leadership is None or partition.leadership.state.latest_offset_known()
