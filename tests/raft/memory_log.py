"""A log in memory whose disk forgets, at a crash, what was not synced."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.raft.control import observe_voters, whole_batches
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import read_header, stamp

__all__ = ["Entry", "MemoryLog"]


class Entry(NamedTuple):
    """A batch and what its header says."""

    offset: int
    end_offset: int
    epoch: int
    data: bytes


class MemoryLog:
    """Whole batches in a list; `durable` is what a crash leaves."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.snapshot: LogPoint | None = None
        self.start_offset = 0
        #: what the disk knows to be committed
        self.committed_offset = 0
        self.snapshots: dict[LogPoint, bytes] = {}
        self._partial = bytearray()

    # -- RaftLog

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset if self.entries else self.start_offset

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.snapshot.epoch if self.snapshot is not None else 0

    def end_offset_for_epoch(self, epoch: int) -> LogPoint:
        known = LogPoint(0, 0)
        if self.snapshot is not None and self.snapshot.offset == self.start_offset:
            known = self.snapshot if self.snapshot.epoch <= epoch else LogPoint(epoch, self.start_offset)
        for entry in reversed(self.entries):
            if entry.epoch <= epoch:
                return LogPoint(entry.epoch, entry.end_offset)
        return known

    def checksum_before(self, offset: int) -> int:
        if offset <= self.start_offset:
            return -1
        return next((read_header(e.data).crc for e in self.entries if e.end_offset == offset), -2)

    def append(self, batches: bytearray, epoch: int) -> int:
        base_offset = offset = self.end_offset
        position = 0
        for header, batch in list(whole_batches(batches)):
            stamp(batches, position, offset, epoch)
            end_offset = offset + header.last_offset_delta + 1
            self.entries.append(Entry(offset, end_offset, epoch, bytes(batch)))
            offset = end_offset
            position += len(batch)
        return base_offset

    def append_replicated(self, batches: Buffer) -> None:
        for header, batch in whole_batches(batches):
            if header.base_offset != self.end_offset:
                raise CorruptMessage(f"{header.base_offset} does not follow {self.end_offset}")
            self.entries.append(
                Entry(header.base_offset, header.next_offset, header.leader_epoch, bytes(batch))
            )

    def truncate_to(self, offset: int) -> None:
        while self.entries and self.entries[-1].end_offset > offset:
            self.entries.pop()

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for entry in self.entries:
            if entry.offset >= offset and (not found or len(found) < max_bytes):
                found += entry.data
        return found

    def delete_before(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        self.entries = [entry for entry in self.entries if entry.offset >= offset]
        self.durable = [entry for entry in self.durable if entry.offset >= offset]

    def read_snapshot(self, snapshot: LogPoint, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        content = self.snapshots.get(snapshot)
        return None if content is None else (len(content), content[position : position + max_bytes])

    def write_snapshot(self, snapshot: LogPoint, position: int, chunk: Buffer) -> None:
        del self._partial[position:]
        self._partial += chunk

    def install_snapshot(self, snapshot: LogPoint) -> VoterSet | None:
        self.keep_snapshot(snapshot, bytes(self._partial))
        self.entries, self.durable = [], []
        self.start_offset = snapshot.offset
        return self._snapshot_voters()

    # -- the test's side

    def keep_snapshot(self, snapshot: LogPoint, content: bytes) -> None:
        self.snapshots = {snapshot: content}
        self.snapshot = snapshot

    def sync(self) -> int:
        """Make everything durable; the end offset up to which that now holds."""
        self.durable = list(self.entries)
        return self.end_offset

    def crash(self) -> None:
        """What was not synced is gone; a cut that was not synced is undone."""
        self.entries = list(self.durable)

    def history(self, static: VoterSet) -> VoterHistory:
        """The voters as a restarting driver finds them."""
        history = VoterHistory(static)
        if self.snapshot is not None:
            history.reset(self.snapshot.offset, self._snapshot_voters())
        for entry in self.entries:
            observe_voters(history, entry.data)
        return history

    def _snapshot_voters(self) -> VoterSet | None:
        assert self.snapshot is not None
        named = VoterHistory(VoterSet())
        observe_voters(named, self.snapshots[self.snapshot])
        return named.latest if len(named.latest) else None
