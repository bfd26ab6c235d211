"""The log as the quorum needs it: a thin adapter of `storage.Log`, and one in memory for tests."""

from __future__ import annotations

from typing import Protocol

from penstock.ports import Buffer, FileRange
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterSet

__all__ = ["RaftLog"]


class RaftLog(Protocol):
    """Batches from `start_offset` to `end_offset`. Below `start_offset` there is `snapshot`.

    Nothing here waits for the disk, except `install_snapshot`. Appended records are durable once the driver
    says so (`RaftNode.flushed`). Truncated records may come back after a crash. Raft allows both.
    """

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last record, of the snapshot where there is no record, 0 where there is neither."""
        ...

    @property
    def snapshot(self) -> LogPoint | None:
        """The latest one; what it holds is committed, and the log reaches to its end or beyond."""
        ...

    @property
    def committed_offset(self) -> int:
        """The checkpointed high watermark, at most the end offset; the real one may be higher."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> LogPoint:
        """The largest epoch at or below `epoch` that wrote here, and where it ends."""
        ...

    def checksum_before(self, offset: int) -> int:
        """The checksum of the batch that ends at `offset`; -1 at the log's start, -2 if none ends there."""
        ...

    def append(self, batches: bytearray, epoch: int) -> int:
        """Append as the leader of `epoch`, stamping offsets and epoch into `batches`; the first offset."""
        ...

    def append_replicated(self, batches: Buffer) -> None:
        """Append a leader's batches as they are; CorruptMessage if they are damaged or do not follow."""
        ...

    def truncate_to(self, offset: int) -> None: ...

    def read(self, offset: int, max_bytes: int) -> Buffer | FileRange:
        """Batches from `offset` on, at least one; the last may be cut. Empty at the end of the log."""
        ...

    def delete_before(self, offset: int) -> None:
        """Records below `offset` are in a snapshot and no longer needed."""
        ...

    def read_snapshot(self, snapshot: LogPoint, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        """(size, bytes from `position` on), or None if there is no such snapshot."""
        ...

    def write_snapshot(self, snapshot: LogPoint, position: int, chunk: Buffer) -> None:
        """Bytes of a snapshot that is being fetched; position 0 starts it again."""
        ...

    def install_snapshot(self, snapshot: LogPoint) -> VoterSet | None:
        """Make the fetched snapshot durable and start an empty log behind it; the voters that it names."""
        ...
