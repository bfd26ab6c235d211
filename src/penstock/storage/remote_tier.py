"""The part of a log that lies in an archive, below the start of the broker's own copy.

`Log` asks it for whatever lies below `local_log_start_offset`. An answer that needs bytes of the archive
raises `ColdRemote`, as pages that are not in memory raise `ColdPages`: the reader loads it and asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.model.errors import OffsetOutOfRange, RemoteReadFailed
from penstock.ports import FileRange
from penstock.storage.lookup import DatedBatch
from penstock.storage.transactions import AbortedTransaction

__all__ = ["RemoteTier", "TieredLog", "all_aborted", "archive_of", "latest_of", "read_remote"]


class RemoteTier(Protocol):
    """The archived part of one log. Every method may raise ColdRemote, or RemoteReadFailed."""

    def read(self, offset: int, max_bytes: int, at_least_one: bool, upper: int) -> FileRange | None:
        """Batches from the one that has `offset` to before `upper`, up to `max_bytes`.

        None if nothing is there or fits.
        """
        ...

    def offset_behind(self, offset: int, found: FileRange) -> int:
        """An offset at or behind the end of what a read from `offset` found; a near one."""
        ...

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that reach into [start, upper).

        Those whose marker is in the archive; for a range that a read has just found.
        """
        ...

    def batch_at_or_after(self, timestamp: int, start: int) -> DatedBatch | None:
        """The batch that may have the first record from `start` on with `timestamp` or a later one."""
        ...

    def max_timestamp(self) -> int:
        """The largest timestamp; -1 if there is none."""
        ...


class TieredLog(Protocol):
    """A log as these functions use it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def local_log_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def remote(self) -> RemoteTier | None: ...


def archive_of(log: TieredLog) -> RemoteTier:
    """The archived part of a log; RemoteReadFailed while this broker does not read the archive."""
    if log.remote is None:
        raise RemoteReadFailed(
            f"the records below offset {log.local_log_start_offset} are in the archive of tiered storage, "
            "which this broker does not read"
        )
    return log.remote


def read_remote(
    log: TieredLog, offset: int, max_bytes: int, upper: int, at_least_one: bool
) -> FileRange | int | None:
    """As `Log.read`, for an offset that the local segments do not have; OffsetOutOfRange if no tier has it.

    Returns the offset to go on from, in the local segments, if compaction left nothing of the archive's rest.
    """
    if not log.log_start_offset <= offset < log.local_log_start_offset:
        raise OffsetOutOfRange(f"offset {offset} is not within [{log.log_start_offset}, {log.end_offset}]")
    remote = archive_of(log)
    if offset >= upper:
        return None
    found = remote.read(offset, max_bytes, at_least_one, upper)
    local_start = log.local_log_start_offset
    return local_start if found is None and at_least_one and upper >= local_start else found


def all_aborted(
    log: TieredLog, start: int, upper: int, local: Sequence[AbortedTransaction]
) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions of both tiers; some may be in both."""
    found = [(aborted.producer_id, aborted.first_offset) for aborted in local]
    if start >= log.local_log_start_offset:
        return found
    return list(dict.fromkeys([*archive_of(log).aborted_transactions(start, upper), *found]))


def latest_of(log: TieredLog, start: int, local: DatedBatch | None) -> DatedBatch | None:
    """The batch with the largest timestamp of both tiers, the earlier one of equal ones."""
    if max(start, log.log_start_offset) >= log.local_log_start_offset:
        return local
    remote = archive_of(log)
    largest = remote.max_timestamp()
    if largest < 0 or (local is not None and local.timestamp > largest):
        return local
    return remote.batch_at_or_after(largest, max(start, log.log_start_offset)) or local
