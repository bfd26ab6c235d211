"""Seals: what the files beside a segment must be, so that none of them is believed by itself.

    OFFSET.seal     fields with a checksum (`checkpoint.format_fields`)

A seal names the log, the segment and its end, and has the checksums of the files that belong to that end:
offset index, time index, transaction index, and the producer snapshot at the end offset. It also has the
checksums of the first and the last batch header, which have the checksums of their records: a segment of
another partition, or an older copy, has others. A file that is missing, older, exchanged or overwritten does
not fit, and is rebuilt from the batches.

The manifest of a clean shutdown has a checksum of each seal and of the first batch header of its segment. So
a seal that was removed, or exchanged together with its segment, is noticed, too. They are compared when the
seal is read, before the first use of the segment (`ExpectedSeal`).

A segment is sealed when it takes no more appends, and at a clean shutdown. A seal whose size is not that of
the segment is of an earlier end, and counts as none. Segments of earlier releases have no seal, and neither
do segments whose files were replaced since: until they are sealed, cheaper rules have to do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from penstock.model.ids import NO_TOPIC_ID, format_topic_id
from penstock.ports import File, Files
from penstock.records.batch import HEADER_SIZE
from penstock.records.checksum import crc32c
from penstock.storage.checkpoint import format_fields, parse_fields
from penstock.storage.scan import read_bytes

__all__ = [
    "ANY_SEAL",
    "NO_OWNER",
    "ExpectedSeal",
    "LogOwner",
    "Seal",
    "decode_seal",
    "encode_seal",
    "file_checksum",
    "header_checksums",
]

_VERSION: Final = "0"
_ABSENT: Final = "-"
_LOST: Final = format_topic_id(NO_TOPIC_ID)


class LogOwner(NamedTuple):
    """The partition that a log belongs to."""

    #: 22 characters; "-" if it is not known
    topic_id: str
    partition: int

    @classmethod
    def of(cls, topic_id: str, partition: int) -> LogOwner:
        """`topic_id` may be that of no topic, where it was lost."""
        return cls(_ABSENT if topic_id == _LOST else topic_id, partition)

    def may_be(self, other: LogOwner) -> bool:
        """Returns true unless both are known and differ."""
        if NO_OWNER in (self, other):
            return True
        ids = {self.topic_id, other.topic_id} - {_ABSENT}
        return len(ids) < 2 and self.partition == other.partition


#: of a log that was opened without its partition
NO_OWNER: Final = LogOwner(_ABSENT, -1)


class ExpectedSeal(NamedTuple):
    """What is known about the seal of a segment without reading it: by the manifest, or by its last write."""

    owner: LogOwner = NO_OWNER
    #: of the segment that was sealed; -1 if nothing but the owner is known
    size: int = -1
    #: of the seal's file
    checksum: int = 0
    #: of the first batch header
    first_header: int = 0

    def is_known(self, size: int) -> bool:
        """Returns true if the segment has a seal while it has this size."""
        return self.size == size

    def admits(self, data: bytes | None, size: int) -> bool:
        """Returns true if `data`, the file of a seal or None, may be that of the segment."""
        return self.size != size or (data is not None and crc32c(data) == self.checksum)

    def forgotten(self) -> ExpectedSeal:
        return ExpectedSeal(self.owner)


#: nothing is known about the seal
ANY_SEAL: Final = ExpectedSeal()


class Seal(NamedTuple):
    """The segment from `base_offset` to `end_offset`, and the checksums of its files."""

    owner: LogOwner
    base_offset: int
    end_offset: int
    size: int
    #: where the last batch starts
    last: int
    #: the largest timestamp, and the last offset of its batch
    max_timestamp: int
    max_timestamp_end: int
    #: of the first batch header, and of the last one
    first_header: int
    last_header: int
    #: of the files; None if there is none, or if it is not known
    offsets: int | None
    times: int | None
    #: None if there is no such file: no transaction is aborted in the segment
    transactions: int | None
    #: of the snapshot at `end_offset`
    snapshot: int | None

    def fits(self, owner: LogOwner, base_offset: int, size: int) -> bool:
        """Returns true if this is the seal of the segment at `base_offset`, with this size, of this log."""
        return self.base_offset == base_offset and self.size == size and owner.may_be(self.owner)


_NUMBERS: Final = (
    "partition",
    "base_offset",
    "end_offset",
    "size",
    "last",
    "max_timestamp",
    "max_timestamp_end",
)
_CHECKSUMS: Final = ("first_header", "last_header", "index", "timeindex", "txnindex", "snapshot")
_FIELDS: Final = frozenset({"version", "topic_id", *_NUMBERS, *_CHECKSUMS})


def encode_seal(seal: Seal) -> bytes:
    lines = [f"version: {_VERSION}", f"topic_id: {seal.owner.topic_id}"]
    numbers = (seal.owner.partition, *seal[1:7])
    lines += [f"{name}: {number}" for name, number in zip(_NUMBERS, numbers, strict=True)]
    for name, checksum in zip(_CHECKSUMS, seal[7:], strict=True):
        lines.append(f"{name}: {_ABSENT if checksum is None else f'{checksum:08x}'}")
    return format_fields("\n".join([*lines, ""]).encode())


def decode_seal(data: bytes) -> Seal:
    """ValueError on anything that is not a whole seal."""
    fields = parse_fields(data, _FIELDS)
    if fields.keys() != _FIELDS or fields["version"] != _VERSION or b"crc32c: " not in data:
        raise ValueError("it is not a seal")
    partition, *numbers = (int(fields[name]) for name in _NUMBERS)
    first, last, *files = (None if fields[name] == _ABSENT else int(fields[name], 16) for name in _CHECKSUMS)
    base_offset, end_offset, size, position, newest, newest_end = numbers
    return Seal(
        LogOwner(fields["topic_id"], partition),
        base_offset,
        end_offset,
        size,
        position,
        newest,
        newest_end,
        first or 0,
        last or 0,
        *files,
    )


def header_checksums(file: File, last: int, cached_only: bool = False) -> tuple[int, int]:
    """The checksums of the first batch header of a segment, and of the one at `last`."""
    return (
        crc32c(read_bytes(file, HEADER_SIZE, 0, cached_only)),
        crc32c(read_bytes(file, HEADER_SIZE, last, cached_only)),
    )


def file_checksum(files: Files, path: str) -> int | None:
    """The checksum of a file; None if there is none."""
    with suppress(FileNotFoundError):
        return crc32c(files.read(path))
    return None
