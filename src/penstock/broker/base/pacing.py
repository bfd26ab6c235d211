"""Files that are read and written at a limited rate, so that compaction does not saturate a disk."""

from __future__ import annotations

import time

from penstock.broker.base.system_ports import OsFile, OsFiles
from penstock.ports import Buffer, File

__all__ = ["PacedFiles"]


class _Pace:
    """Limits bytes per second by sleeping; to be used in a separate thread or process only."""

    __slots__ = ("_bytes_per_s", "_free_at")

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def moved(self, size: int) -> None:
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + size / self._bytes_per_s
        time.sleep(self._free_at - now)


class _PacedFile(OsFile):
    __slots__ = ("_pace",)

    def __init__(self, path: str, pace: _Pace, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._pace = pace

    def append(self, data: Buffer) -> None:
        super().append(data)
        self._pace.moved(len(data))

    def pread(self, size: int, position: int) -> bytes:
        data = super().pread(size, position)
        self._pace.moved(len(data))
        return data


class PacedFiles(OsFiles):
    """The operating system's files; reads and writes of all files together are limited to `bytes_per_s`."""

    __slots__ = ("_pace",)

    def __init__(self, bytes_per_s: float) -> None:
        self._pace = _Pace(bytes_per_s)

    def open(self, path: str, *, create: bool = False) -> File:
        return _PacedFile(path, self._pace, create=create)
