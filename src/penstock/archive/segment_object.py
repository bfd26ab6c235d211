"""The bytes of a segment object: the batches of a log, unchanged, and the files that belong to them.

    batches | sections | table | footer

The sections are the offset index, the time index, the transaction index, the producer snapshot at the end of
the segment, the leader epochs up to the end of the segment, and checksums of the blocks of the batches. Each
has the format that it has beside a segment on a disk. The table is a JSON object that names the partition,
the offsets and the sections. The footer has 24 bytes: magic, version, size and checksum of the table, and a
checksum of the footer itself. So an object can be read without a manifest, and any range of it verified.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

import msgspec

from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.ports import Buffer
from penstock.records.checksum import crc32c

__all__ = [
    "BLOCK_BYTES",
    "FOOTER_BYTES",
    "Section",
    "SegmentTable",
    "assemble",
    "block_checksums",
    "check_blocks",
    "parse_footer",
    "parse_table",
    "section_of",
]

#: Each block of batches has a checksum of its own, so that a range can be verified: the whole object has one,
#: too.
BLOCK_BYTES: Final = 256 << 10
_MAGIC: Final = b"PNSTKSEG"
_VERSION: Final = 1
#: magic, version, reserved, size of the table, CRC-32C of the table, CRC-32C of the 20 bytes before
_FOOTER: Final = Struct(">8sHHIII")
_FOOTER_CHECKED: Final = 20
FOOTER_BYTES: Final = _FOOTER.size
#: A table names six sections; more is damage.
_TABLE_BYTES_MAX: Final = 64 << 10

INDEX: Final = "index"
TIME_INDEX: Final = "timeindex"
TRANSACTION_INDEX: Final = "txnindex"
PRODUCERS: Final = "producers"
EPOCHS: Final = "epochs"
BLOCKS: Final = "blocks"
SECTIONS: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX, PRODUCERS, EPOCHS, BLOCKS)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A range of the object, with its CRC-32C."""

    name: str
    position: int
    size: int
    crc32c: int


class SegmentTable(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a segment object."""

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    next_offset: int
    min_timestamp: int
    max_timestamp: int
    leader_epoch: int
    missing: int
    #: bytes of batches
    log_size: int
    block_size: int = BLOCK_BYTES
    #: how the object is encrypted; version 1 writes none and reads none
    encryption: msgspec.Raw | None = None
    sections: tuple[Section, ...] = ()


_TABLE: Final = msgspec.json.Decoder(SegmentTable)


def assemble(log: bytearray, sections: dict[str, bytes], table: SegmentTable) -> bytearray:
    """Make the object of a segment of its batches, in place; `table` is completed with the sections."""
    assert tuple(sections) == SECTIONS[:-1] and table.log_size == len(log)
    sections = {**sections, BLOCKS: block_checksums(log, table.block_size)}
    found = []
    for name, content in sections.items():
        found.append(Section(name=name, position=len(log), size=len(content), crc32c=crc32c(content)))
        log += content
    encoded = msgspec.json.encode(msgspec.structs.replace(table, sections=tuple(found)))
    head = _FOOTER.pack(_MAGIC, _VERSION, 0, len(encoded), crc32c(encoded), 0)[:_FOOTER_CHECKED]
    log += encoded + head + crc32c(head).to_bytes(4, "big")
    return log


def block_checksums(log: Buffer, block_size: int = BLOCK_BYTES) -> bytes:
    """The CRC-32C of each block of the batches, the last of which may be shorter."""
    view = memoryview(log)
    sums = (crc32c(view[start : start + block_size]) for start in range(0, len(view), block_size))
    return b"".join(each.to_bytes(4, "big") for each in sums)


def check_blocks(data: Buffer, position: int, blocks: bytes, block_size: int, name: str) -> None:
    """ArchiveDamaged unless `data`, whole blocks from `position` on, has the checksums in `blocks`."""
    assert position % block_size == 0
    sums = array("I", blocks)
    first = position // block_size
    found = array("I", block_checksums(data, block_size))
    if found != sums[first : first + len(found)]:
        raise ArchiveDamaged(f"{name} is damaged between bytes {position} and {position + len(data)}")


def parse_footer(data: Buffer, name: str) -> tuple[int, int]:
    """(size, checksum) of the table, from the last bytes of an object."""
    if len(data) < FOOTER_BYTES:
        raise ArchiveDamaged(f"{name} has {len(data)} bytes: it is no segment")
    footer = bytes(data[-FOOTER_BYTES:])
    magic, version, _, size, checksum, own = _FOOTER.unpack(footer)
    if magic != _MAGIC or crc32c(footer[:_FOOTER_CHECKED]) != own:
        raise ArchiveDamaged(f"{name} does not end as a segment does")
    if version > _VERSION:
        raise ArchiveRefused(
            f"{name} has version {version} of the segment format, this Penstock reads {_VERSION}: upgrade it"
        )
    if size > _TABLE_BYTES_MAX:
        raise ArchiveDamaged(f"{name} has a table of {size} bytes")
    return size, checksum


def parse_table(data: Buffer, object_size: int, name: str) -> SegmentTable:
    """The table of an object of `object_size` bytes, whose last bytes are `data`."""
    size, checksum = parse_footer(data, name)
    end = len(data) - FOOTER_BYTES
    if end < size:
        raise ArchiveDamaged(f"{name}: {len(data)} bytes are too few for a table of {size}")
    encoded = bytes(data[end - size : end])
    if crc32c(encoded) != checksum:
        raise ArchiveDamaged(f"{name} has a damaged table")
    try:
        table = _TABLE.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ArchiveDamaged(f"{name} has a damaged table: {e}") from e
    if table.encryption is not None:
        raise ArchiveRefused(f"{name} is encrypted: this Penstock does not read encrypted archives")
    _check_sections(table, object_size - FOOTER_BYTES - size, name)
    return table


def _check_sections(table: SegmentTable, end: int, name: str) -> None:
    """ArchiveDamaged unless the sections lie one behind the other, up to `end`."""
    position = table.log_size
    for section in table.sections:
        if section.position != position or section.size < 0:
            raise ArchiveDamaged(f"{name} has the section {section.name} at byte {section.position}")
        position += section.size
    blocks = -(-table.log_size // table.block_size) if table.block_size > 0 else -1
    sizes = {section.name: section.size for section in table.sections}
    if position != end or sizes.keys() != set(SECTIONS) or sizes[BLOCKS] != 4 * blocks:
        raise ArchiveDamaged(f"{name} has other sections than its size and its batches demand")


def section_of(table: SegmentTable, section: str) -> Section:
    return next(each for each in table.sections if each.name == section)
