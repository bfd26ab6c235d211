"""The metadata log on the disk: a log like any other, and snapshots that stand for its beginning.

Beside the segments lie `quorum-state` and `<offset>-<epoch>.checkpoint`: a snapshot holds control records
(header, voters, footer) and, between them, the records that make an image. A snapshot gets its name only when
it is whole and synced, so one that has a name can be trusted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from penstock.model.errors import CorruptMessage, StorageError
from penstock.ports import Buffer, Clock, File, FileRange, Files
from penstock.raft.control import observe_voters, voters_batch, whole_batches
from penstock.raft.messages import LogPoint
from penstock.raft.state import QuorumState, UnreadableQuorumState, decode_quorum_state, encode_quorum_state
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.record import Record, build_batch, iter_records
from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.removal import Removal
from penstock.wire.control_records import SnapshotFooterRecord, SnapshotHeaderRecord, encode_control_record
from penstock.wire.metadata_records import decode_metadata_record, encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["MetadataLog", "encode_snapshot", "records_in"]

T = TypeVar("T")
_QUORUM_STATE: Final = "quorum-state"
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_READ_BYTES: Final = 1 << 20
#: records per batch of a snapshot: whoever reads one holds a batch in memory
_SNAPSHOT_RECORDS: Final = 1000
#: a change is one batch, however many partitions it touches
_CONFIG: Final = LogConfig(
    retention_ms=-1, max_message_bytes=256 << 20, message_timestamp_after_max_ms=FOREVER
)


class MetadataLog:
    """Implements `raft.log.RaftLog`. Owned by the event loop's thread."""

    def __init__(self, log: Log, files: Files, clock: Clock) -> None:
        log.reconfigure(_CONFIG)
        self.log = log
        self._files = files
        self._clock = clock
        self._partial: File | None = None
        self.snapshot: LogPoint | None = max(self._snapshots(), default=None, key=lambda point: point.offset)
        if self.snapshot is not None:
            self._start_behind(self.snapshot)

    def _start_behind(self, snapshot: LogPoint) -> None:
        """Let the log go on from `snapshot`; one that has not got so far, or otherwise, starts over.

        A log that starts where the snapshot ends knows nothing of the epoch before, and has all that follows.
        """
        parts = self.log.log_start_offset < snapshot.offset and (
            self._epoch_before(snapshot.offset) != snapshot.epoch
        )
        if self.log.end_offset < snapshot.offset or parts:
            self.log.reset_to(snapshot.offset)
        self.log.advance_high_watermark(snapshot.offset)
        self.log.delete_records(snapshot.offset)

    def _epoch_before(self, offset: int) -> int | None:
        return self.log.leader_epochs.epoch_of(offset - 1)

    # -- the log

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_epoch(self) -> int:
        if self.log.leader_epochs.latest >= 0:
            return self.log.leader_epochs.latest
        return self.snapshot.epoch if self.snapshot is not None else 0

    @property
    def committed_offset(self) -> int:
        return min(self.log.high_watermark, self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> LogPoint:
        epochs, starts = self.log.leader_epochs.epochs, self.log.leader_epochs.starts
        following = bisect_right(epochs, epoch)
        if following:
            end = starts[following] if following < len(starts) else self.end_offset
            return LogPoint(epochs[following - 1], end)
        if self.snapshot is not None and self.snapshot.offset == self.start_offset:
            return self.snapshot if self.snapshot.epoch <= epoch else LogPoint(epoch, self.start_offset)
        return LogPoint(0, 0)

    def append(self, batches: bytearray, epoch: int) -> int:
        view = memoryview(batches)
        return self._even_if_full(lambda: self.log.append(view, epoch, origin=AppendOrigin.RAFT).base_offset)

    def append_replicated(self, batches: Buffer) -> None:
        # Checksums do not cover offsets, and unlike a topic's this log has no gaps.
        expected = self.end_offset
        for header, _ in whole_batches(batches):
            if header.base_offset != expected:
                raise CorruptMessage(f"a batch at offset {header.base_offset} does not follow {expected - 1}")
            expected = header.next_offset
        self._even_if_full(lambda: self.log.append_replicated(batches))

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)

    def read(self, offset: int, max_bytes: int) -> Buffer | FileRange:
        return self.log.read(offset, max_bytes, upper=self.end_offset) or b""

    def batches(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """(offset behind it, bytes) of each batch from `start` to before `end`."""
        while start < end:
            found = self.log.read(start, _READ_BYTES, upper=end)
            assert found is not None
            for header, batch in whole_batches(found.read()):
                start = header.next_offset
                yield start, batch

    def delete_before(self, offset: int) -> None:
        self.log.advance_high_watermark(offset)
        self.log.delete_records(offset)

    def trim(self) -> list[Removal]:
        """Let go of what is below the start; `delete` each in a worker thread."""
        return self.log.apply_retention(self._clock.now_ms())

    # -- voters and votes

    def voters(self, static: VoterSet) -> VoterHistory:
        """Who votes by what is in the snapshot and in the log, committed or not."""
        history = VoterHistory(static)
        if self.snapshot is not None:
            history.reset(self.snapshot.offset, self._snapshot_voters(self.snapshot))
        for _, batch in self.batches(self.start_offset, self.end_offset):
            observe_voters(history, batch)
        return history

    def load_state(self, *, is_only_voter: bool) -> QuorumState:
        """What the node must not have forgotten; UnreadableQuorumState if it has."""
        state = QuorumState()
        with suppress(FileNotFoundError):
            state = decode_quorum_state(self._files.read(f"{self.log.path}/{_QUORUM_STATE}"))
        if state.epoch < self.last_epoch:
            # One that votes alone may write before its vote is on the disk: nobody else can have voted.
            if not is_only_voter:
                raise UnreadableQuorumState(
                    f"{self.log.path}/{_QUORUM_STATE} is of epoch {state.epoch}, the log of {self.last_epoch}"
                )
            state = QuorumState(self.last_epoch)
        return state

    def save_state(self, state: QuorumState) -> None:
        """Durably; touches files only, so it belongs into a worker thread."""
        path = f"{self.log.path}/{_QUORUM_STATE}"

        def write() -> None:
            try:
                self._files.write_atomic(path, encode_quorum_state(state))
            except OSError as e:
                raise self.log.health.failed(e, f"cannot write {path}") from e

        self._even_if_full(write)

    def _even_if_full(self, write: Callable[[], T]) -> T:
        """Do `write`; once more if it was the first to find no room: now there is what was kept for this."""
        had_room = self.log.health.full is None
        try:
            return write()
        except StorageError:
            if had_room and self.log.health.full is not None:
                return write()
            raise

    # -- snapshots

    def epoch_at(self, end_offset: int) -> int:
        """The epoch of the last record below `end_offset`, which is in the log or where a snapshot ends."""
        epoch = self._epoch_before(end_offset)
        if epoch is None:
            assert self.snapshot is not None
            return self.snapshot.epoch
        return epoch

    def store_snapshot(self, snapshot: LogPoint, content: bytes) -> None:
        """Durably; touches files only, so it belongs into a worker thread. `keep_snapshot` follows."""
        with _disk(f"write {self._path(snapshot)}"):
            self._files.write_atomic(self._path(snapshot), content)

    def keep_snapshot(self, snapshot: LogPoint) -> None:
        """From now on this is the latest one; those before it go."""
        self.snapshot = snapshot
        with _disk(f"remove snapshots before {self._path(snapshot)}"):
            for older in self._snapshots():
                if older.offset < snapshot.offset:
                    self._files.remove(self._path(older))

    def snapshot_records(self, snapshot: LogPoint) -> Iterator[Struct]:
        return records_in(self._files.read(self._path(snapshot)))

    def read_snapshot(self, snapshot: LogPoint, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        with _disk(f"read {self._path(snapshot)}"):
            try:
                file = self._files.open(self._path(snapshot))
            except FileNotFoundError:
                return None
            size, chunk = file.size(), file.pread(max_bytes, position) if position >= 0 else b""
            file.close()
            return size, chunk

    def write_snapshot(self, snapshot: LogPoint, position: int, chunk: Buffer) -> None:
        with _disk(f"write {self._path(snapshot)}.part"):
            if position == 0:
                self._drop_partial()
                self._partial = self._files.open(f"{self._path(snapshot)}.part", create=True)
                self._partial.truncate(0)
            assert self._partial is not None and self._partial.size() == position
            self._partial.append(chunk)

    def install_snapshot(self, snapshot: LogPoint) -> VoterSet | None:
        assert self._partial is not None
        with _disk(f"install {self._path(snapshot)}"):
            self._partial.sync()
            self._drop_partial()
            self._files.rename(f"{self._path(snapshot)}.part", self._path(snapshot))
            self._files.sync_dir(self.log.path)
        self.log.reset_to(snapshot.offset)
        self.keep_snapshot(snapshot)
        return self._snapshot_voters(snapshot)

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self._partial.close()
            self._partial = None

    def _snapshot_voters(self, snapshot: LogPoint) -> VoterSet | None:
        named = VoterHistory(VoterSet())
        observe_voters(named, self._files.read(self._path(snapshot)))
        return named.latest if len(named.latest) else None

    def _snapshots(self) -> list[LogPoint]:
        names = map(_SNAPSHOT.fullmatch, self._files.listdir(self.log.path))
        return [LogPoint(int(name[2]), int(name[1])) for name in names if name is not None]

    def _path(self, snapshot: LogPoint) -> str:
        return f"{self.log.path}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"


@contextmanager
def _disk(doing: str) -> Iterator[None]:
    """An error of the disk is a StorageError, as those of the log are."""
    try:
        yield
    except OSError as e:
        raise StorageError(f"cannot {doing}: {e}") from e


def records_in(batches: Buffer) -> Iterator[Struct]:
    """The metadata records of whole batches, without the control records between them."""
    for header, batch in whole_batches(batches):
        if not header.is_control:
            for record in iter_records(batch):
                assert record.value is not None
                yield decode_metadata_record(record.value)


def encode_snapshot(records: Iterable[Struct], voters: VoterSet | None, timestamp_ms: int) -> bytes:
    """The content of a snapshot file; `voters` where they are not the configured ones."""
    parts = [_control(SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms), timestamp_ms)]
    if voters is not None:
        parts.append(bytes(voters_batch(voters, timestamp_ms, first=True)))
    values = [encode_metadata_record(record) for record in records]
    for first in range(0, len(values), _SNAPSHOT_RECORDS):
        chunk = values[first : first + _SNAPSHOT_RECORDS]
        parts.append(build_batch(Record(n, timestamp_ms, None, value) for n, value in enumerate(chunk)))
    parts.append(_control(SnapshotFooterRecord(), timestamp_ms))
    return b"".join(parts)


def _control(record: Struct, timestamp_ms: int) -> bytes:
    return build_batch([Record(0, timestamp_ms, *encode_control_record(record))], control=True)
