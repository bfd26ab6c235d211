"""Snapshots of the metadata log on disk (KIP-630): `<offset>-<epoch>.checkpoint`.

A snapshot contains control records (header, voters, footer) and between them the records of an image. It gets
its final name only when it is complete and synced. Its content is checked before any of it is used or sent to
another node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.broker.node.metadata_check import (
    DamagedMetadata,
    check_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from penstock.model.errors import CorruptMessage, StorageError
from penstock.ports import Buffer, File, Files
from penstock.raft.control import observe_voters, voters_batch, whole_batches
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import read_header, stamp
from penstock.records.record import Record, build_batch, iter_records
from penstock.wire.control_records import SnapshotFooterRecord, SnapshotHeaderRecord, encode_control_record
from penstock.wire.metadata_records import decode_metadata_record, encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["SnapshotFiles", "encode_snapshot", "records_in"]

#: records per batch of a snapshot: a reader keeps one batch in memory
_SNAPSHOT_RECORDS: Final = 1000


class SnapshotFiles:
    """The snapshots in the directory of a metadata log, and the one that is being received from a leader."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._partial: File | None = None

    def found(self) -> list[LogPoint]:
        """The ends of all snapshots in the directory, in no order."""
        names = map(parse_snapshot_name, self._files.listdir(self._directory))
        return [snapshot for snapshot in names if snapshot is not None]

    def store(self, snapshot: LogPoint, content: bytes) -> None:
        """Write a snapshot durably, to be called in a worker thread."""
        with _disk(f"write {self._path(snapshot)}"):
            self._files.write_atomic(self._path(snapshot), content)

    def remove_before(self, snapshot: LogPoint) -> None:
        """Delete the snapshots that end before `snapshot`."""
        with _disk(f"remove snapshots before {self._path(snapshot)}"):
            for older in self.found():
                if older.offset < snapshot.offset:
                    self._files.remove(self._path(older))

    def records(self, snapshot: LogPoint) -> Iterator[Struct]:
        """The records of the image in a snapshot."""
        return records_in(self._checked(snapshot))

    def voters(self, snapshot: LogPoint) -> VoterSet | None:
        """The voters in a snapshot; None if it names none."""
        named = VoterHistory(VoterSet())
        observe_voters(named, self._checked(snapshot))
        return named.latest if len(named.latest) else None

    def _checked(self, snapshot: LogPoint) -> bytes:
        path = self._path(snapshot)
        data = self._files.read(path)
        check_snapshot(data, snapshot, path)
        return data

    def read(self, snapshot: LogPoint, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        """(size of the snapshot, bytes from `position` on), None if there is no such snapshot."""
        with _disk(f"read {self._path(snapshot)}"):
            if position == 0 and self._files.exists(self._path(snapshot)):
                self._checked(snapshot)
            try:
                file = self._files.open(self._path(snapshot))
            except FileNotFoundError:
                return None
            size, chunk = file.size(), file.pread(max_bytes, position) if position >= 0 else b""
            file.close()
            return size, chunk

    def write_part(self, snapshot: LogPoint, position: int, chunk: Buffer) -> None:
        """Write bytes of a snapshot that is received from the leader, in the order of their positions."""
        with _disk(f"write {self._path(snapshot)}.part"):
            if position == 0:
                self._close_partial()
                self._partial = self._files.open(f"{self._path(snapshot)}.part", create=True)
                self._partial.truncate(0)
            assert self._partial is not None and self._partial.size() == position
            self._partial.append(chunk)

    def complete(self, snapshot: LogPoint) -> None:
        """Check and sync the snapshot that was received, and give it its final name."""
        assert self._partial is not None
        partial = self._partial.path
        with _disk(f"install {self._path(snapshot)}"):
            try:
                check_snapshot(self._files.read(partial), snapshot, partial)
            except DamagedMetadata as e:
                raise CorruptMessage(f"the leader's snapshot was damaged on the way: {e}") from e
            self._partial.sync()
            self._close_partial()
            self._files.rename(partial, self._path(snapshot))
            self._files.sync_dir(self._directory)

    def _close_partial(self) -> None:
        if self._partial is not None:
            self._partial.close()
            self._partial = None

    def _path(self, snapshot: LogPoint) -> str:
        return f"{self._directory}/{snapshot_name(snapshot)}"


@contextmanager
def _disk(doing: str) -> Iterator[None]:
    """Convert an OSError to a StorageError, as the log does."""
    try:
        yield
    except OSError as e:
        raise StorageError(f"cannot {doing}: {e}") from e


def records_in(batches: Buffer) -> Iterator[Struct]:
    """The metadata records of complete batches, without the control records between them."""
    for header, batch in whole_batches(batches):
        if not header.is_control:
            for record in iter_records(batch):
                assert record.value is not None
                yield decode_metadata_record(record.value)


def encode_snapshot(
    records: Iterable[Struct], voters: VoterSet | None, timestamp_ms: int, end: LogPoint
) -> bytes:
    """The content of a snapshot file; `voters` is None if the voters come from the config."""
    header = SnapshotHeaderRecord(
        last_contained_log_timestamp=timestamp_ms, end_offset=end.offset, end_epoch=end.epoch
    )
    parts = [_control(header, timestamp_ms)]
    if voters is not None:
        parts.append(bytes(voters_batch(voters, timestamp_ms, first=True)))
    values = [encode_metadata_record(record) for record in records]
    for first in range(0, len(values), _SNAPSHOT_RECORDS):
        chunk = values[first : first + _SNAPSHOT_RECORDS]
        parts.append(build_batch(Record(n, timestamp_ms, None, value) for n, value in enumerate(chunk)))
    parts.append(_control(SnapshotFooterRecord(), timestamp_ms))
    content = bytearray(b"".join(parts))
    position = offset = 0
    while position < len(content):
        # Checksums do not cover offsets. Consecutive offsets show that no batch is missing.
        stamp(content, position, offset, end.epoch)
        batch = read_header(content, position)
        position, offset = position + batch.size, batch.next_offset
    return bytes(content)


def _control(record: Struct, timestamp_ms: int) -> bytes:
    return build_batch([Record(0, timestamp_ms, *encode_control_record(record))], control=True)
