"""The copies of the metadata log that a stopped node has, with every batch in them that is intact.

A node that found its log damaged has moved it to the quarantine and started an empty one, so a node can have
several copies. Damage hides one batch, not those after it: the reader continues at the next intact batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.broker.node.metadata_check import (
    DamagedMetadata,
    check_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from penstock.model.ids import METADATA_TOPIC
from penstock.ports import Buffer, Files
from penstock.raft.control import leader_change_in, starts_epoch
from penstock.raft.messages import LogPoint
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.storage.quarantine import QUARANTINE
from penstock.storage.segment_files import LOG

__all__ = ["Copy", "Piece", "copies_of", "read_copy"]

#: a batch whose base offset is this far from the expected one is no batch
_JUMP_MAX: Final = 1 << 32
_MAGIC_POSITION: Final = 16


class Piece(NamedTuple):
    """An intact batch, or the header of a damaged one: then `data` is empty."""

    offset: int
    end: int
    epoch: int
    crc: int
    data: bytes = b""

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self[:4]


class Copy:
    """One copy of the metadata log."""

    def __init__(self, node_id: int, path: str) -> None:
        self.node_id = node_id
        self.path = path
        #: everything below is committed, as far as the node knows
        self.committed = 0
        #: everything below was on the disk
        self.durable = 0
        self.snapshots: dict[LogPoint, bytes] = {}
        #: intact batches by base offset, in the order of the log
        self.pieces: dict[int, Piece] = {}
        #: headers of damaged batches that seem to be readable
        self.headers: set[tuple[int, int, int, int]] = set()
        self.damage: list[str] = []

    @property
    def end(self) -> LogPoint:
        """The end of the last intact batch, or of the last snapshot."""
        ends = [LogPoint(piece.epoch, piece.end) for piece in list(self.pieces.values())[-1:]]
        return max([LogPoint(0, 0), *self.snapshots, *ends])


def copies_of(files: Files, node_id: int, directories: list[str]) -> list[Copy]:
    """The copies in the data directories of a node: the log, and logs in the quarantine."""
    paths = []
    for directory in directories:
        topic = f"{directory}/topics/{METADATA_TOPIC}"
        paths += [f"{topic}/partition-0", f"{topic}/damaged"]
        quarantine = f"{directory}/{QUARANTINE}"
        for entry in sorted(files.listdir(quarantine)) if files.is_dir(quarantine) else []:
            if entry.startswith(METADATA_TOPIC):
                paths.append(f"{quarantine}/{entry}/data/partition-0")
    return [read_copy(files, node_id, path) for path in paths if files.is_dir(path)]


def read_copy(files: Files, node_id: int, path: str) -> Copy:
    """The copy in the folder `path`."""
    copy = Copy(node_id, path)
    names = files.listdir(path)
    for point in filter(None, map(parse_snapshot_name, names)):
        name = f"{path}/{snapshot_name(point)}"
        data = files.read(name)
        try:
            check_snapshot(data, point, name)
        except DamagedMetadata as e:
            copy.damage.append(str(e))
        else:
            copy.snapshots[point] = data
    reader = _Reader(copy)
    for base in sorted(int(n[: -len(LOG)]) for n in names if n.endswith(LOG) and n[: -len(LOG)].isdigit()):
        name = f"{path}/{base:020d}{LOG}"
        reader.read(name, files.read(name), base)
    return copy


class _Reader:
    """Reads the segments of a copy, in order."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._expected = -1
        self._epoch = -1
        #: whether the batch before is missing: the next one may have any offset and any epoch above
        self._lost = False
        self._epoch_lost = True

    def read(self, path: str, data: bytes, base: int) -> None:
        if base != self._expected:
            if self._expected >= 0:
                self._copy.damage.append(f"{path}: offsets {self._expected} to {base - 1} are missing")
            self._expected, self._lost = base, False
            # The epoch of the batch before is not known, so any may follow.
            self._epoch_lost = True
        at = 0
        while at < len(data):
            found = _batch_at(data, at)
            if found is not None and self._fits(*found, _batch_at(data, at + found[0].size)):
                self._add(*found)
                at += found[0].size
                continue
            self._note(path, data, at)
            at = at + found[0].size if found is not None else self._next(data, at + 1)

    def _fits(
        self, header: BatchHeader, batch: memoryview, following: tuple[BatchHeader, memoryview] | None
    ) -> bool:
        """Whether offset and epoch, which no checksum covers, continue the log, up to the batch after."""
        if not 0 <= header.base_offset - self._expected < (_JUMP_MAX if self._lost else 1):
            return False
        if header.leader_epoch < self._epoch:
            return False
        if not self._lost and not self._epoch_lost:
            rises = header.leader_epoch > self._epoch
            return not rises or (header.is_control and starts_epoch(batch, header.leader_epoch))
        if header.is_control and leader_change_in(batch) is not None:
            return starts_epoch(batch, header.leader_epoch)
        return following is None or _follows(header, *following)

    def _add(self, header: BatchHeader, batch: memoryview) -> None:
        self._copy.pieces[header.base_offset] = Piece(
            header.base_offset, header.next_offset, header.leader_epoch, header.crc, bytes(batch)
        )
        self._expected, self._epoch = header.next_offset, header.leader_epoch
        self._lost = self._epoch_lost = False

    def _note(self, path: str, data: bytes, at: int) -> None:
        if not self._lost:
            self._copy.damage.append(f"{path} is damaged at byte {at}, offset {self._expected}")
        if len(data) - at >= HEADER_SIZE:
            header = read_header(memoryview(data), at)
            if header.base_offset == self._expected and header.last_offset_delta >= 0:
                self._copy.headers.add((self._expected, header.next_offset, header.leader_epoch, header.crc))
        self._lost = True

    def _next(self, data: bytes, at: int) -> int:
        """The position of the next intact batch, or the end of the file."""
        for position in _candidates(data, at):
            found = _batch_at(data, position)
            if found is not None and 0 <= found[0].base_offset - self._expected < _JUMP_MAX:
                return position
        return len(data)


def _follows(before: BatchHeader, header: BatchHeader, batch: memoryview) -> bool:
    """Whether a batch can come after another one, perhaps with batches between them."""
    if header.base_offset < before.next_offset or header.leader_epoch < before.leader_epoch:
        return False
    rises = header.leader_epoch > before.leader_epoch
    return not rises or (header.is_control and starts_epoch(batch, header.leader_epoch))


def _candidates(data: bytes, at: int) -> Iterator[int]:
    """Positions from `at` on where the byte of the magic number is right."""
    magic = bytes([MAGIC])
    found = data.find(magic, at + _MAGIC_POSITION)
    while found >= 0:
        yield found - _MAGIC_POSITION
        found = data.find(magic, found + 1)


def _batch_at(data: Buffer, at: int) -> tuple[BatchHeader, memoryview] | None:
    """The intact batch at a position, by its checksum; None if there is none."""
    view = memoryview(data)
    if len(view) - at < HEADER_SIZE:
        return None
    header = read_header(view, at)
    if header.magic != MAGIC or header.last_offset_delta < 0 or header.base_offset < 0:
        return None
    if not HEADER_SIZE <= header.size <= len(view) - at:
        return None
    batch = view[at : at + header.size]
    return (header, batch) if crc_matches(batch, header) else None
