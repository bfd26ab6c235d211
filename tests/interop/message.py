"""What clients send and read, whatever they call it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["CODECS", "Headers", "Message"]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    #: milliseconds; None lets the client take the time
    timestamp: int | None = None

    def without_timestamp(self) -> Message:
        return self._replace(timestamp=None)
