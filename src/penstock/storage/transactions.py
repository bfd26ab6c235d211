"""The transaction index of a segment: which aborted transactions end in it.

Readers of committed records skip what lies between an aborted transaction's first record and its marker. An
entry is written when the marker is; aborts are rare, so entries go to the file at once. The file exists only
where there are entries; its format is Kafka's, 34 bytes each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from penstock.ports import File, Files
from penstock.storage.scan import read_bytes

__all__ = ["ABORTED_ENTRY", "AbortedTransaction", "TransactionIndex", "encode_entries"]

_VERSION: Final = 0
ABORTED_ENTRY: Final = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction whose abort marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    #: no transaction that started below this was open once the marker was in place
    last_stable_offset: int


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """The content of an index file."""
    return b"".join(ABORTED_ENTRY.pack(_VERSION, *aborted) for aborted in entries)


class TransactionIndex:
    """The aborted transactions that end in one segment, in the order of their markers."""

    __slots__ = ("_entries", "_file", "_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._file: File | None = None
        self._entries: list[AbortedTransaction] | None = None

    @property
    def file(self) -> File | None:
        """The open file, where entries were added since the segment was opened."""
        return self._file

    def assume_empty(self) -> None:
        """There is no file: the log was opened with a listing of its directory."""
        self._entries = []

    def entries(self, cached_only: bool = False) -> list[AbortedTransaction]:
        if self._entries is None:
            data = self._read(cached_only)
            whole = len(data) - len(data) % ABORTED_ENTRY.size
            self._entries = [AbortedTransaction(*e[1:]) for e in ABORTED_ENTRY.iter_unpack(data[:whole])]
        return self._entries

    def _read(self, cached_only: bool) -> bytes:
        try:
            file = self._files.open(self._path)
        except FileNotFoundError:
            return b""
        return read_bytes(file, file.size(), 0, cached_only)

    def add(self, aborted: AbortedTransaction) -> None:
        entries = self.entries()
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
            # A crash may have left half an entry behind.
            self._file.truncate(len(entries) * ABORTED_ENTRY.size)
        self._file.append(encode_entries([aborted]))
        entries.append(aborted)

    def collect(
        self, start: int, upper: int, into: list[AbortedTransaction], cached_only: bool = False
    ) -> bool:
        """Add to `into` what reaches into [start, upper); True when later segments cannot have more."""
        entries = self.entries(cached_only)
        for aborted in entries[bisect_left(entries, start, key=attrgetter("last_offset")) :]:
            if aborted.first_offset < upper:
                into.append(aborted)
            if aborted.last_stable_offset >= upper:
                return True
        return False

    def cut(self, offset: int) -> None:
        """Forget transactions whose marker is at `offset` or behind."""
        kept = [aborted for aborted in self.entries() if aborted.last_offset < offset]
        if len(kept) != len(self.entries()):
            file = self._file = self._file or self._files.open(self._path)
            file.truncate(len(kept) * ABORTED_ENTRY.size)
            self._entries = kept

    def clear(self) -> None:
        """Start without entries, whatever is on the disk."""
        self._file = None
        self._entries = []
        if self._files.exists(self._path):
            self._files.remove(self._path)

    def rewrite(self, entries: Iterable[AbortedTransaction]) -> File:
        """Replace all entries; returns the file, which is not synced."""
        self._entries = list(entries)
        file = self._file = self._file or self._files.open(self._path, create=True)
        file.truncate(0)
        file.append(encode_entries(self._entries))
        return file

    def reload(self) -> None:
        """The file was replaced: the next use reads it."""
        self._file = self._entries = None
