"""Prints the files of a log, and verifies them.

Works on files alone, without a broker: a segment, an index, a snapshot, a checkpoint, or the directory of a
partition with all of them. `dump` changes nothing and reads as far as it can; `verify` reports errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from penstock.model.errors import ApiError, PenstockError
from penstock.ports import Buffer, File, Files
from penstock.records.batch import BatchHeader
from penstock.records.codecs import Codec
from penstock.records.control import parse_end_transaction
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP
from penstock.records.record import iter_records
from penstock.storage.batch_search import whole_batches
from penstock.storage.continuity import MISPLACED
from penstock.storage.epochs import EPOCHS_FILE, epoch_lines
from penstock.storage.index import IndexDamaged, OffsetIndex, TimeIndex
from penstock.storage.recorded_offsets import recorded_offsets
from penstock.storage.segment import Segment
from penstock.storage.segment_files import (
    COMPACTED,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from penstock.storage.snapshot import decode_snapshot
from penstock.storage.transaction_check import index_problems
from penstock.storage.transactions import ABORTED_ENTRY, TransactionIndex

__all__ = ["Report", "UnknownFile", "dump", "verify"]

Entries = Iterator[dict[str, Any]]

_NAMES: Final = "name a segment such as 00000000000000000000.log, its indexes, or their directory"


class UnknownFile(PenstockError):
    """A file that no log has."""


@dataclass(slots=True)
class Report:
    """The outcome of `verify`."""

    batches: int = 0
    records: int = 0
    #: offsets that are in no segment, though they should be
    missing: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


# -- dump


def dump(files: Files, path: str, *, records: bool = False) -> Entries:
    """The entries of a file; of a directory, those of each file behind an entry that names it."""
    if not files.is_dir(path):
        yield from _dump_file(files, path, records)
        return
    for name in files.listdir(path):
        if _kind(name) is not None:
            yield {"file": name}
            yield from _dump_file(files, f"{path}/{name}", records)


def _dump_file(files: Files, path: str, records: bool) -> Entries:
    name = path.rpartition("/")[2]
    kind = _kind(name)
    if kind is None:
        raise UnknownFile(f"{path} is no file of a log, going by its name: {_NAMES}")
    if kind == LOG:
        return _dump_segment(files.open(path), records)
    return _DUMPERS[kind](files.read(path), name)


def _kind(name: str) -> str | None:
    """The type of a file by its name: a suffix of segments' files, or the name of the epochs' checkpoint."""
    if name == EPOCHS_FILE:
        return name
    stem, dot, suffix = name.partition(".")
    return dot + suffix if stem.isdecimal() and (dot + suffix == LOG or dot + suffix in _DUMPERS) else None


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def _dump_segment(file: File, records: bool) -> Entries:
    end = 0
    for position, fields, batch in whole_batches(file, 0, file.size()):
        header = BatchHeader._make(fields)
        end = position + header.size
        yield _describe_batch(position, header, batch)
        if records and not header.is_control:
            yield from _describe_records(batch)
    if end != file.size():
        yield {"position": end, "damaged_bytes": file.size() - end}


def _describe_batch(position: int, header: BatchHeader, batch: Buffer) -> dict[str, Any]:
    described = {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "compression": _codec_name(header.compression),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }
    if header.is_control and header.producer_id >= 0 and (marker := parse_end_transaction(batch)) is not None:
        described["ends_transaction"] = "COMMIT" if marker.committed else "ABORT"
        described["coordinator_epoch"] = marker.coordinator_epoch
    return described


def _codec_name(codec: int) -> str:
    try:
        return Codec(codec).label
    except ValueError:
        return f"unknown ({codec})"


def _describe_records(batch: Buffer) -> Entries:
    try:
        for record in iter_records(batch):
            yield record._asdict()
    except ApiError as e:
        yield {"unreadable_records": str(e)}


def _dump_offset_index(data: bytes, name: str) -> Entries:
    base = _base_offset(name)
    index = OffsetIndex.decode(data, 1 << 32)
    for end, position in zip(index.ends, index.positions, strict=True):
        yield {"offset": base + end, "position": position}


def _dump_time_index(data: bytes, name: str) -> Entries:
    base = _base_offset(name)
    index = TimeIndex.decode(data)
    for timestamp, end in zip(index.timestamps, index.ends, strict=True):
        yield {"timestamp": timestamp, "offset": base + end}


def _dump_transaction_index(data: bytes, name: str) -> Entries:
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(data[:whole]):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _dump_snapshot(data: bytes, name: str) -> Entries:
    for state in decode_snapshot(data):
        yield {
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": state.batches[-1].last_offset if state.batches else -1,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_start": state.transaction_start,
            "batches": len(state.batches),
        }


def _dump_epochs(data: bytes, name: str) -> Entries:
    for line in epoch_lines(data):
        epoch, start = line.split()
        yield {"epoch": int(epoch), "start_offset": int(start)}


_DUMPERS: Final[dict[str, Callable[[bytes, str], Entries]]] = {
    OFFSET_INDEX: _dump_offset_index,
    TIME_INDEX: _dump_time_index,
    TRANSACTION_INDEX: _dump_transaction_index,
    SNAPSHOT: _dump_snapshot,
    EPOCHS_FILE: _dump_epochs,
}


# -- verify


def verify(files: Files, path: str, advance: Callable[[int], None] = lambda size: None) -> Report:
    """Check a file, or every file of a partition's directory; an index is held against its segment.

    `advance` is called with the number of bytes of segments that were verified.
    """
    report = Report()
    if not files.is_dir(path):
        _verify_file(files, path, report, advance)
        return report
    ends: list[tuple[int, int]] = []
    for name in files.listdir(path):
        if _kind(name) is not None:
            end_offset = _verify_file(files, f"{path}/{name}", report, advance)
            if end_offset is not None:
                ends.append((_base_offset(name), end_offset))
            if _kind(name) == LOG:
                _verify_transactions(files, f"{path}/{name}", report)
        elif name.endswith(MISPLACED):
            report.problems.append(f"{path}/{name}: its batches belong at other offsets than its name says")
    _verify_continuity(files, path, ends, report)
    return report


def _verify_file(files: Files, path: str, report: Report, advance: Callable[[int], None]) -> int | None:
    """Check a file; of a segment, returns the offset behind its last sound batch."""
    name = path.rpartition("/")[2]
    kind = _kind(name)
    if kind is None:
        raise UnknownFile(f"{path} is no file of a log, going by its name: {_NAMES}")
    try:
        if kind == LOG:
            return _verify_segment(files, path, _base_offset(name), report, advance)
        if kind in (OFFSET_INDEX, TIME_INDEX):
            _verify_index(files, path, kind, report)
        else:
            for _ in _DUMPERS[kind](files.read(path), name):
                pass
    except (IndexDamaged, ValueError) as e:
        report.problems.append(f"{path}: {e}")
    return None


def _verify_segment(
    files: Files, path: str, base_offset: int, report: Report, advance: Callable[[int], None]
) -> int:
    """Check every batch; returns the offset behind the last sound one."""
    file = files.open(path)
    gaps_allowed = files.exists(path.removesuffix(LOG) + COMPACTED)
    next_offset = base_offset
    end = 0
    for position, fields, batch in whole_batches(file, 0, file.size()):
        header = BatchHeader._make(fields)
        report.batches += 1
        if header.base_offset < next_offset:
            report.problems.append(
                f"{file.path}: the batch at byte {position} has offset {header.base_offset}, "
                f"which cannot follow {next_offset - 1}"
            )
        elif not gaps_allowed:
            _report_missing(report, path, next_offset, header.base_offset)
        next_offset = header.next_offset
        end = position + header.size
        try:
            report.records += sum(1 for _ in iter_records(batch))
        except ApiError as e:
            report.problems.append(f"{file.path}: the batch at byte {position} cannot be read: {e}")
        advance(header.size)
    if end != file.size():
        left = file.size() - end
        report.problems.append(f"{file.path}: the batch at byte {end} is damaged ({left} bytes are left)")
        advance(left)
    return next_offset


def _verify_continuity(files: Files, path: str, ends: list[tuple[int, int]], report: Report) -> None:
    """Check that segments, by base offset and end, lead from the log start to the recovery point."""
    if not ends:
        return
    start, recovery_point = recorded_offsets(files, path)
    ends.sort()
    if start is not None:
        _report_missing(report, f"{path}: before the first segment", start, ends[0][0])
    for (base, end), (following, _) in pairwise(ends):
        segment = Segment(files, path, base, files.size(f"{path}/{file_name(base)}{LOG}"), 0)
        if segment.is_compacted:
            coverage = segment.coverage()
            end = following if coverage is None or segment.size < coverage.size else coverage.next_offset
            if coverage is not None and segment.size < coverage.size:
                report.problems.append(
                    f"{segment.path(LOG)}: {segment.size} bytes are left of {coverage.size}"
                )
        _report_missing(report, f"{path}: behind segment {file_name(base)}", max(end, start or 0), following)
    _report_missing(report, f"{path}: at the end", ends[-1][1], recovery_point)


def _report_missing(report: Report, where: str, first_offset: int, next_offset: int) -> None:
    if first_offset < next_offset:
        count = next_offset - first_offset
        report.missing += count
        report.problems.append(f"{where}: offsets {first_offset} to {next_offset - 1} are missing ({count})")


def _verify_transactions(files: Files, path: str, report: Report) -> None:
    """Check a segment's transaction index, which exists only for a segment with aborted transactions."""
    index_path = path.removesuffix(LOG) + TRANSACTION_INDEX
    file = files.open(path)
    batches = ((BatchHeader._make(fields), batch) for _, fields, batch in whole_batches(file, 0, file.size()))
    entries = TransactionIndex(files, index_path).entries()
    report.problems += [f"{index_path}: {problem}" for problem in index_problems(batches, entries)]


def _verify_index(files: Files, path: str, kind: str, report: Report) -> None:
    log_path = path.removesuffix(kind) + LOG
    if not files.exists(log_path):
        report.problems.append(f"{path}: there is no segment {log_path}")
        return
    file = files.open(log_path)
    base = _base_offset(path.rpartition("/")[2])
    batches = {
        fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] - base: (position, fields[MAX_TIMESTAMP])
        for position, fields, _ in whole_batches(file, 0, file.size())
    }
    for entry in _DUMPERS[kind](files.read(path), path.rpartition("/")[2]):
        end = entry["offset"] - base
        found = batches.get(end)
        stated = entry.get("position", entry.get("timestamp"))
        if found is None or found[kind == TIME_INDEX] != stated:
            report.problems.append(f"{path}: no batch is as its entry says: {entry}")
