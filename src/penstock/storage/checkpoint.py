"""Checkpoint files: a version line, a line with the number of entries, one line per entry.

Version 0 is Kafka's. Version 1 adds a last line with the CRC-32C of everything before it. Version 2 is as
version 1, and its lines may have more fields than those of version 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.records.checksum import crc32c

__all__ = ["format_checked", "format_checkpoint", "is_checked", "parse_checkpoint"]

_VERSION = "0"
_CHECKED_HEADS = (b"1\n", b"2\n")


def format_checkpoint(lines: Iterable[str]) -> bytes:
    return _format(_VERSION, lines)


def format_checked(lines: Iterable[str], version: int = 1) -> bytes:
    """A checkpoint of version 1 or 2."""
    content = _format(str(version), lines)
    return content + f"{crc32c(content):08x}\n".encode()


def _format(version: str, lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([version, str(len(entries)), *entries, ""]).encode()


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
