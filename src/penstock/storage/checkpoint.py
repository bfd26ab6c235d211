"""Kafka's checkpoint files: a version line (0), a line with the number of entries, one line per entry."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["format_checkpoint", "parse_checkpoint"]

_VERSION = "0"


def format_checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def parse_checkpoint(data: bytes) -> list[str]:
    """The entries; ValueError on anything else, a file that was cut short included."""
    version, _, rest = data.decode().partition("\n")
    count, _, body = rest.partition("\n")
    entries = body.split("\n")
    if version != _VERSION or entries.pop() != "" or len(entries) != int(count):
        raise ValueError(f"not a checkpoint of version {_VERSION} with {count!r} entries")
    return entries
