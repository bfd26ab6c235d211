"""Verifies a segment object: its bytes, its batches, and the files behind them.

Invariant: an object that passes is exactly what its entry in a manifest and its own table describe. Indexes
and aborted transactions are built again from the batches, and compared. The state of producers at the end of
a segment depends on earlier segments, so it is compared only with a state that has gone along from before.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.archive import segment_object
from penstock.archive.batches import split_batches
from penstock.archive.building import LogState, SegmentBuilder, owner_of
from penstock.archive.documents import SegmentEntry, digest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.names import ArchivedPartition
from penstock.archive.segment_object import SegmentTable, block_checksums, parse_table
from penstock.model.ids import format_topic_id
from penstock.ports import Buffer
from penstock.records.checksum import crc32c

__all__ = ["CheckedSegment", "check_segment", "check_table", "sections_of"]


class CheckedSegment(NamedTuple):
    """A segment that passed: the batches, and the state of the log at its end."""

    log: memoryview
    state: LogState


def check_table(table: SegmentTable, entry: SegmentEntry, owner: ArchivedPartition) -> None:
    """ArchiveDamaged unless the table is that of `entry`, in the partition `owner`."""
    found = (table.topic, table.topic_id, table.partition)
    if found != (owner.topic, format_topic_id(owner.topic_id), owner.partition):
        raise ArchiveDamaged(f"{entry.name} is of partition {table.partition} of topic {table.topic}")
    for field in (
        "base_offset",
        "next_offset",
        "log_size",
        "min_timestamp",
        "max_timestamp",
        "leader_epoch",
        "missing",
    ):
        if getattr(table, field) != getattr(entry, field):
            raise ArchiveDamaged(
                f"{entry.name} has {field} {getattr(table, field)}, its manifest {getattr(entry, field)}"
            )


def sections_of(data: memoryview, table: SegmentTable, name: str) -> dict[str, bytes]:
    """The contents of all sections of an object; ArchiveDamaged for one that fails its checksum."""
    sections = {}
    for section in table.sections:
        content = bytes(data[section.position : section.position + section.size])
        if crc32c(content) != section.crc32c:
            raise ArchiveDamaged(f"{name} has a damaged section {section.name}")
        sections[section.name] = content
    return sections


def check_segment(
    data: Buffer, entry: SegmentEntry, owner: ArchivedPartition, before: LogState | None
) -> CheckedSegment:
    """Verify every byte of an object. `before` is the state at the start of the segment, if it is known."""
    if len(data) != entry.size or digest(data) != entry.sha256:
        raise ArchiveDamaged(
            f"{entry.name} has {len(data)} bytes that do not match the SHA-256 of its manifest"
        )
    view = memoryview(data)
    table = parse_table(view, len(data), entry.name)
    check_table(table, entry, owner)
    sections = sections_of(view, table, entry.name)
    log = view[: table.log_size]
    if block_checksums(log, table.block_size) != sections[segment_object.BLOCKS]:
        raise ArchiveDamaged(f"{entry.name} has blocks that do not match their checksums")
    state = LogState.decode(
        entry.next_offset,
        sections[segment_object.EPOCHS],
        sections[segment_object.PRODUCERS],
        owner_of(owner),
    )
    _check_content(log, entry, owner, sections, before)
    return CheckedSegment(log, state)


def _check_content(
    log: memoryview,
    entry: SegmentEntry,
    owner: ArchivedPartition,
    sections: dict[str, bytes],
    before: LogState | None,
) -> None:
    """Build the segment again from its batches, and compare."""
    builder = SegmentBuilder(owner, before or LogState(entry.base_offset))
    if builder.base_offset != entry.base_offset:
        raise ArchiveDamaged(
            f"{entry.name} starts at {entry.base_offset}, {builder.base_offset} is the next one"
        )
    for batch in split_batches(log, entry.name):
        header = builder.append(batch, entry.name)
        if header.next_offset > entry.next_offset:
            raise ArchiveDamaged(f"{entry.name} has offset {header.last_offset} behind its end")
    builder.cover(entry.next_offset)
    rebuilt = builder.sections()
    compared = [segment_object.INDEX, segment_object.TIME_INDEX]
    if before is not None:
        compared += [segment_object.TRANSACTION_INDEX, segment_object.EPOCHS]
    for name in compared:
        if rebuilt[name] != sections[name]:
            raise ArchiveDamaged(f"{entry.name} has another {name} than its batches give")
    found = (builder.missing, builder.min_timestamp, builder.max_timestamp)
    if found != (entry.missing, entry.min_timestamp, entry.max_timestamp):
        raise ArchiveDamaged(f"{entry.name} has other offsets or timestamps than its batches")
