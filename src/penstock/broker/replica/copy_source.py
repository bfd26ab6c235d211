"""The log of a partition that this broker leads, as copies to the archive read it."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.replica.partition import Partition
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.log import Log
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG
from penstock.tiering.selection import LocalSegment, LocalView

__all__ = ["PartitionSource", "bytes_before", "copyable_end", "sealed_since"]

_OFFSET_BYTES: Final = 8


def copyable_end(partition: Partition) -> int:
    """Segments that end at or below it may be copied: stable, and on this broker's disk.

    With `penstock.flush=os` nothing tells what is on the disk; the operator has chosen so.
    """
    log = partition.log
    if partition.sync.flusher.policy == "os":
        return log.last_stable_offset
    return min(log.last_stable_offset, log.recovery_point)


def sealed_since(log: Log, offset: int) -> tuple[LocalSegment, ...]:
    """The sealed segments that reach beyond `offset`."""
    found = log.segments.since(offset)
    return tuple(
        LocalSegment(each.base_offset, following.base_offset, each.size)
        for each, following in pairwise(found)
        if following.base_offset > offset
    )


async def bytes_before(partition: Partition, workers: Workers, offset: int, size: int) -> bytes | None:
    """The last bytes, `size` at most, of the committed batches below `offset` on this broker's disk.

    Empty if no batch ends there; None if the log has no such batch, or has not committed it.
    """
    log = partition.log
    below = [each for each in log.segments if each.base_offset < offset]
    if not below or offset > log.high_watermark:
        return None
    last, found = below.pop(), b""
    position = await retry_when_cached(partition, workers, lambda: last.find(offset, cached_only=True))
    if position < last.size:
        following = await workers.in_thread(_read, last, position, _OFFSET_BYTES)
        if int.from_bytes(following, "big") < offset:
            return b""
    while True:
        start = max(0, position - size + len(found))
        found = await workers.in_thread(_read, last, start, position - start) + found
        if len(found) == size or not below:
            return found
        last = below.pop()
        position = last.size


class PartitionSource:
    """Implements `tiering.copying.LocalSource` for one leader epoch."""

    def __init__(self, partition: Partition, workers: Workers) -> None:
        self._partition = partition
        self._workers = workers
        self._leader_epoch = partition.leader_epoch

    @property
    def is_leader(self) -> bool:
        """Whether this broker still leads in the leader epoch of the copy."""
        partition = self._partition
        return partition.hosted and partition.leading and partition.leader_epoch == self._leader_epoch

    def view(self, since: int) -> LocalView | None:
        partition = self._partition
        log = partition.log
        if not (self.is_leader and partition.is_online and log.config.remote_storage_enable):
            return None
        return LocalView(
            # One that nothing explains is no reason to shorten the archive.
            min(log.log_start_offset, log.explained_start),
            log.local_log_start_offset,
            log.end_offset,
            -1 if log.config.remote_log_copy_disable else copyable_end(partition),
            sealed_since(log, since),
            log.leader_epochs.epoch_of,
        )

    async def position(self, segment: LocalSegment, offset: int) -> int:
        return await retry_when_cached(
            self._partition, self._workers, lambda: self._segment(segment).find(offset, cached_only=True)
        )

    async def read(self, segment: LocalSegment, position: int, size: int) -> bytes:
        return await self._workers.in_thread(_read, self._segment(segment), position, size)

    async def bytes_before(self, offset: int, size: int) -> bytes | None:
        return await bytes_before(self._partition, self._workers, offset, size)

    async def is_compacted(self, segment: LocalSegment) -> bool:
        found = self._segment(segment)
        return await self._workers.in_thread(lambda: found.is_compacted)

    def _segment(self, wanted: LocalSegment) -> Segment:
        """The segment; FileNotFoundError if the log has it no more, or another one in its place."""
        found = self._partition.log.segments.holding(wanted.base_offset)
        if (found.base_offset, found.size) != (wanted.base_offset, wanted.size):
            raise FileNotFoundError(f"{self._partition.name} has no segment at {wanted.base_offset} any more")
        return found


def _read(segment: Segment, position: int, size: int) -> bytes:
    """Read in a worker thread, with a descriptor of its own: the loop's thread owns the segment's."""
    try:
        file = segment.files.open(segment.path(LOG))
        try:
            return file.pread(size, position)
        finally:
            file.close()
    except FileNotFoundError:
        raise  # removed meanwhile, by retention or compaction
    except OSError as e:
        raise StorageError(f"cannot read {segment.path(LOG)}: {e}") from e
