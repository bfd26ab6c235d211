"""Writes the seals of segments, and compares files with them; see `penstock.storage.seals`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock.ports import File, Files
from penstock.records.checksum import crc32c
from penstock.storage.scan import CorruptLog
from penstock.storage.seals import (
    ExpectedSeal,
    LogOwner,
    Seal,
    decode_seal,
    encode_seal,
    header_checksums,
)
from penstock.storage.segment import Segment
from penstock.storage.segment_files import (
    SEAL,
    SNAPSHOT,
    file_name,
)
from penstock.storage.transactions import encode_entries

__all__ = [
    "EndedSegment",
    "check_seals",
    "expect_listed_seals",
    "expect_seals",
    "listed_seals",
    "read_seal",
    "seal_again",
    "seal_segment",
    "seal_snapshot",
    "unseal",
]


def seal_segment(
    segment: Segment, files: Files, owner: LogOwner, end_offset: int, snapshot: bytes | None
) -> File | None:
    """Seal a segment whose indexes have just been saved; returns the file, which is not synced.

    `snapshot` is the one at `end_offset`. None if the indexes are not those of this process.
    """
    if segment.index_checksums is None or not segment.size:
        return None
    entries = segment.transactions.entries()
    last = segment.tail()
    seal = Seal(
        owner,
        segment.base_offset,
        end_offset,
        segment.size,
        last,
        segment.max_timestamp(),
        segment.max_timestamp_end,
        *header_checksums(segment.open_file(), last),
        *segment.index_checksums,
        crc32c(encode_entries(entries)) if entries else None,
        None if snapshot is None else crc32c(snapshot),
    )
    return _write(files, segment, seal)


def read_seal(files: Files, segment: Segment, owner: LogOwner) -> Seal | None:
    """The seal of a segment as it is now.

    None if there is none, if it is of another segment or size, or if it is not the expected one.
    """
    try:
        data = files.read(segment.path(SEAL))
        seal = decode_seal(data)
    except (FileNotFoundError, ValueError):
        return None
    if not segment.expected_seal.admits(data, segment.size):
        return None
    return seal if seal.fits(owner, segment.base_offset, segment.size) else None


def check_seals(files: Files, directory: str, expected: Iterable[tuple[int, int, ExpectedSeal]]) -> None:
    """OtherSegment if the batches of a segment are not those that were sealed. Runs in a worker thread.

    `expected` has base offset, size, and what is known of the seal.
    """
    for base_offset, size, seal in expected:
        segment = Segment(files, directory, base_offset, size, 0)
        segment.expected_seal = seal
        segment.offsets()
        segment.release()


def seal_snapshot(segment: Segment, files: Files, owner: LogOwner, offset: int, checksum: int) -> File | None:
    """Add the snapshot at `offset`, which was written later, to the seal of the segment that ends there.

    Returns the file, which is not synced; None if there is no such seal.
    """
    seal = read_seal(files, segment, owner)
    if seal is None or seal.end_offset != offset or seal.snapshot is not None:
        return None
    return _write(files, segment, seal._replace(snapshot=checksum))


def unseal(files: Files, segments: Iterable[Segment]) -> None:
    """Remove the seals of segments whose files change."""
    for segment in segments:
        segment.expected_seal = segment.expected_seal.forgotten()
        with suppress(FileNotFoundError):
            files.remove(segment.path(SEAL))


def expect_seals(segments: Iterable[Segment], written: Iterable[tuple[int, ExpectedSeal]]) -> None:
    """Take over what a worker thread has written: base offset and seal of each segment."""
    seals = dict(written)
    for segment in segments:
        seal = seals.get(segment.base_offset)
        if seal is not None and seal.is_known(segment.size):
            segment.expected_seal = seal


class EndedSegment(NamedTuple):
    """A segment that takes no appends, for a worker thread."""

    directory: str
    base_offset: int
    end_offset: int
    size: int


def listed_seals(segments: Iterable[Segment]) -> list[int]:
    """For the manifest: base offset, checksum of the seal, and that of the first batch header, in turn."""
    known = [each for each in segments if each.expected_seal.is_known(each.size)]
    return [
        number
        for each in known
        for number in (each.base_offset, each.expected_seal.checksum, each.expected_seal.first_header)
    ]


def expect_listed_seals(segments: Iterable[Segment], owner: LogOwner, listed: Sequence[int]) -> None:
    """Compare the seals of a log that is opened with those that the manifest lists, once they are read."""
    any_of_owner = ExpectedSeal(owner)
    known = dict(zip(listed[::3], zip(listed[1::3], listed[2::3], strict=True), strict=True))
    for each in segments:
        checksums = known.get(each.base_offset)
        each.expected_seal = ExpectedSeal(owner, each.size, *checksums) if checksums else any_of_owner


def seal_again(
    files: Files, owner: LogOwner, ended: Iterable[EndedSegment]
) -> Sequence[tuple[int, ExpectedSeal]]:
    """Rebuild the indexes of segments and seal them, once their other files were compared with the batches.

    Returns what the log has to be told by `expect_seals`, in the thread that owns it.
    """
    sealed: list[tuple[int, ExpectedSeal]] = []
    for directory, base_offset, end_offset, size in ended:
        segment = Segment(files, directory, base_offset, size, 0)
        with suppress(FileNotFoundError, CorruptLog):
            segment.rebuild_indexes()
            written = segment.save_indexes()
            ends = segment.offsets().ends
            if ends and base_offset + ends[-1] < end_offset:
                path = f"{directory}/{file_name(end_offset)}{SNAPSHOT}"
                snapshot = files.read(path) if files.exists(path) else None
                seal = seal_segment(segment, files, owner, end_offset, snapshot)
                assert seal is not None, "the indexes were saved"
                written.append(seal)
                sealed.append((base_offset, segment.expected_seal))
            for file in written:
                file.sync()
                file.close()
        segment.release()
    return sealed


def _write(files: Files, segment: Segment, seal: Seal) -> File:
    file = files.open(segment.path(SEAL), create=True)
    if file.size():
        file.truncate(0)
    data = encode_seal(seal)
    file.append(data)
    segment.expected_seal = ExpectedSeal(seal.owner, seal.size, crc32c(data), seal.first_header)
    return file
