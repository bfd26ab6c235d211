"""The text formats of small files, and their checksums.

A checkpoint has a version line, a line with the number of entries, and one line per entry. Version 0 is
Kafka's. Version 1 adds a last line with the CRC-32C of everything before it. Versions 2 and 3 are as version
1, and their lines have more fields (`penstock.storage.checkpoint_lines`).

A file of fields has a line `NAME: VALUE` for each field, as Kafka's `partition.metadata`. The last line is
`crc32c: CHECKSUM` of everything before it. Earlier releases ignore that line, and wrote none.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

from penstock.records.checksum import crc32c

__all__ = [
    "format_checked",
    "format_fields",
    "is_checked",
    "parse_checkpoint",
    "parse_fields",
]

_VERSION: Final = "0"
_CHECKED_HEADS: Final = (b"1\n", b"2\n", b"3\n")
_CHECKSUM: Final = b"crc32c: "


def format_checked(lines: Iterable[str], version: int = 1) -> bytes:
    """A checkpoint with a checksum."""
    entries = list(lines)
    content = "\n".join([str(version), str(len(entries)), *entries, ""]).encode()
    return content + f"{crc32c(content):08x}\n".encode()


def is_checked(data: bytes) -> bool:
    """Returns true if `data` is a checkpoint with a checksum, which `parse_checkpoint` verifies."""
    return data.startswith(_CHECKED_HEADS)


def parse_checkpoint(data: bytes) -> list[str]:
    """The entries; ValueError on anything else, a truncated file or a wrong checksum included."""
    if data.startswith(_CHECKED_HEADS):
        content, _, checksum = data[:-1].rpartition(b"\n")
        content += b"\n"
        if data[-1:] != b"\n" or checksum != f"{crc32c(content):08x}".encode():
            raise ValueError(f"the checkpoint's checksum is not {checksum!r}")
        return _parse(content, data[:1].decode())
    return _parse(data, _VERSION)


def _parse(data: bytes, expected_version: str) -> list[str]:
    version, _, rest = data.decode().partition("\n")
    count, _, body = rest.partition("\n")
    entries = body.split("\n")
    if version != expected_version or entries.pop() != "" or len(entries) != int(count):
        raise ValueError(f"not a checkpoint of version {expected_version} with {count!r} entries")
    return entries


def format_fields(content: bytes) -> bytes:
    """A file of fields from its lines."""
    return content + b"%s%08x\n" % (_CHECKSUM, crc32c(content))


def parse_fields(data: bytes, names: Set[str]) -> dict[str, str]:
    """The fields of a file; ValueError on other names than `names`, and on a wrong checksum."""
    if not data:
        raise ValueError("it is empty")
    content, checked, checksum = data.partition(_CHECKSUM)
    if checked and checksum != b"%08x\n" % crc32c(content):
        raise ValueError(f"its checksum is not {checksum!r}")
    *lines, end = content.decode().split("\n")
    fields = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    if end or not fields.keys() <= names:
        raise ValueError(f"it has other lines than {', '.join(sorted(names))}")
    return fields
