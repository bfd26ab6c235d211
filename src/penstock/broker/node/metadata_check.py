"""Checks of the metadata on the disk: every batch of the log, and snapshots as a whole.

Metadata decides which topics exist, so a damaged record must never be applied. A batch's checksum does not
cover its base offset and its leader epoch. Unlike a topic's log, the metadata log has neither gaps nor
falling epochs, and every epoch starts with a control record, so base offset and epoch are checked as well.

Invalid bytes above the durable offset may be the torn tail of an append that a crash has interrupted, and
recovery truncates them. Damage to records that were synced after the last checkpoint looks the same. Other
invalid bytes are damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.model.errors import StorageError
from penstock.model.ids import METADATA_TOPIC
from penstock.ports import Buffer, Files
from penstock.raft.control import snapshot_point, starts_epoch
from penstock.raft.messages import LogPoint
from penstock.records.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.storage.manifest import CLEAN_SHUTDOWN
from penstock.storage.recorded_offsets import recorded_high_watermark, recorded_offsets
from penstock.storage.segment_files import LOG

__all__ = [
    "DamagedMetadata",
    "Recorded",
    "check_log",
    "check_metadata",
    "check_snapshot",
    "checked_batches",
    "metadata_path",
    "parse_snapshot_name",
    "recorded",
    "snapshot_name",
]

_CHECKPOINT: Final = ".checkpoint"


class DamagedMetadata(StorageError):
    """Metadata on disk that must not be used, with its position and the problem."""

    def __init__(self, path: str, position: int, offset: int, problem: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}, offset {offset}: {problem}")
        self.path = path
        self.position = position
        self.offset = offset
        self.problem = problem


class Recorded(NamedTuple):
    """Facts about the metadata log that the data directory has recorded outside of the log."""

    #: all records below this offset were on disk
    durable: int
    #: whether the last shutdown was clean, so that all of the log was on disk
    clean: bool


# -- batches


def checked_batches(
    data: Buffer, path: str, position: int, offset: int, epoch: int = -1
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of `data` with its header, up to an incomplete one; DamagedMetadata if one is damaged.

    `data` starts at byte `position` of the file `path`; the first batch must have the base offset `offset`,
    and a leader epoch that is not below `epoch`.
    """
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_SIZE:
        header = read_header(view, at)
        problem = _header_problem(header, offset, epoch)
        if problem is None and at + header.size > len(view):
            return
        batch = view[at : at + header.size]
        if problem is None and not crc_matches(batch, header):
            problem = "the checksum of the batch does not match"
        if problem is None and header.leader_epoch > epoch >= 0:
            problem = _epoch_problem(header, batch)
        if problem is not None:
            raise DamagedMetadata(path, position + at, offset, problem)
        yield header, batch
        at += header.size
        offset, epoch = header.next_offset, header.leader_epoch


def _header_problem(header: BatchHeader, offset: int, epoch: int) -> str | None:
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.last_offset_delta < 0:
        return "there is no batch"
    if header.base_offset != offset:
        return f"the batch has the base offset {header.base_offset}"
    if header.leader_epoch < epoch:
        return f"the batch is of leader epoch {header.leader_epoch}, the one before it of {epoch}"
    return None


def _epoch_problem(header: BatchHeader, batch: memoryview) -> str | None:
    """The problem of the first batch of an epoch, if any: a leader's epoch starts with a control record."""
    if header.is_control and starts_epoch(batch, header.leader_epoch):
        return None
    return f"leader epoch {header.leader_epoch} does not start here"


# -- the log


def metadata_path(files: Files, data_dirs: Iterable[str]) -> str | None:
    """The directory of the metadata log; None if no data directory has one."""
    for directory in data_dirs:
        path = f"{directory}/topics/{METADATA_TOPIC}/partition-0"
        if files.is_dir(path):
            return path
    return None


def recorded(files: Files, path: str) -> Recorded:
    """The recorded facts about the metadata log at `path`."""
    durable = max(recorded_offsets(files, path)[1], recorded_high_watermark(files, path))
    directory = path.rpartition("/topics/")[0]
    return Recorded(durable, files.exists(f"{directory}/{CLEAN_SHUTDOWN}"))


def check_metadata(files: Files, path: str, known: Recorded) -> None:
    """Check the latest snapshot and the log in the directory `path`, without changing them."""
    snapshot = max(_snapshots(files, path), default=None, key=lambda point: point.offset)
    if snapshot is not None:
        name = f"{path}/{snapshot_name(snapshot)}"
        check_snapshot(files.read(name), snapshot, name)
    check_log(files, path, known, snapshot)


def _snapshots(files: Files, path: str) -> list[LogPoint]:
    return [point for name in files.listdir(path) if (point := parse_snapshot_name(name)) is not None]


def check_log(files: Files, path: str, known: Recorded, snapshot: LogPoint | None) -> None:
    """Check every batch of every segment, and that the log continues the snapshot."""
    bases = sorted(int(name[: -len(LOG)]) for name in files.listdir(path) if _is_segment(name))
    start = 0 if snapshot is None else snapshot.offset
    if bases and bases[0] > start:
        missing = f"offsets {start} to {bases[0] - 1} are missing"
        raise DamagedMetadata(f"{path}/{bases[0]:020d}{LOG}", 0, start, missing)
    end, epoch = (bases[0], -1) if bases else (0, -1)
    name = f"{path}/{bases[-1]:020d}{LOG}" if bases else path
    for base in bases:
        name = f"{path}/{base:020d}{LOG}"
        if base != end:
            if end >= known.durable and not known.clean:
                return
            raise DamagedMetadata(name, 0, end, f"the segment starts at offset {base}")
        end, epoch, sound = _check_segment(files, name, base, epoch, known)
        if not sound:
            return
    # The snapshot replaced a log that ends before it. The log starts again at the snapshot's end.
    if max(end, start) < known.durable:
        size = files.size(name) if bases else 0
        raise DamagedMetadata(
            name, size, end, f"the log ends here, offsets below {known.durable} were durable"
        )


def _is_segment(name: str) -> bool:
    return name.endswith(LOG) and name[: -len(LOG)].isdigit()


def _check_segment(files: Files, name: str, base: int, epoch: int, known: Recorded) -> tuple[int, int, bool]:
    """(end offset, last epoch, whether all is valid); DamagedMetadata unless a crash explains the damage."""
    data = files.read(name)
    end, position = base, 0
    try:
        for header, batch in checked_batches(data, name, 0, base, epoch):
            end, epoch = header.next_offset, header.leader_epoch
            position += len(batch)
        if position < len(data):
            raise DamagedMetadata(name, position, end, "the file ends within a batch")
    except DamagedMetadata as e:
        if known.clean or e.offset < known.durable:
            raise
        return end, epoch, False
    return end, epoch, True


# -- snapshots


def snapshot_name(point: LogPoint) -> str:
    return f"{point.offset:020d}-{point.epoch:010d}{_CHECKPOINT}"


def parse_snapshot_name(name: str) -> LogPoint | None:
    """The end of the snapshot in the file `name`; None if the name is not a snapshot's."""
    stem, dot, suffix = name.partition(".")
    offset, dash, epoch = stem.partition("-")
    if dot + suffix != _CHECKPOINT or not dash or not (offset + epoch).isdigit():
        return None
    point = LogPoint(int(epoch), int(offset))
    return point if snapshot_name(point) == name else None


def check_snapshot(data: Buffer, point: LogPoint, path: str) -> None:
    """Check that `data` is the complete snapshot that ends at `point`; DamagedMetadata if it is not.

    Snapshots of version 0.1.0 do not name their end, and each of their batches starts at offset 0.
    """
    view = memoryview(data)
    position = offset = 0
    named: LogPoint | None = None
    is_over = False
    while position < len(view) and not is_over:
        expected = 0 if position and named is None else offset
        found = next(checked_batches(view[position:], path, position, expected), None)
        if found is None:
            raise DamagedMetadata(path, position, point.offset, "the file ends within a batch")
        header, batch = found
        if position == 0:
            named = _snapshot_start(batch, header, point, path)
        elif named is not None and header.leader_epoch != named.epoch:
            problem = f"the batch is of leader epoch {header.leader_epoch}"
            raise DamagedMetadata(path, position, point.offset, problem)
        is_over = header.is_control and snapshot_point(batch).is_footer
        position += len(batch)
        offset = header.next_offset
    if not is_over or position != len(view):
        raise DamagedMetadata(path, position, point.offset, "the snapshot does not end with its footer")


def _snapshot_start(batch: memoryview, header: BatchHeader, point: LogPoint, path: str) -> LogPoint | None:
    """The end in the snapshot's header, None if there is none."""
    start = snapshot_point(batch) if header.is_control else None
    if start is None or not start.is_header:
        raise DamagedMetadata(path, 0, point.offset, "the snapshot does not start with its header")
    if start.point not in (None, point) or (start.point is not None and header.leader_epoch != point.epoch):
        raise DamagedMetadata(path, 0, point.offset, f"it is the snapshot that ends at {start.point}")
    return start.point
