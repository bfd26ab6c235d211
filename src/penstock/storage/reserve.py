"""The reserve of a data directory: a file that is removed when the disk is full.

A broker with a full disk still has to write metadata and its vote. Without metadata it would name wrong
leaders to clients, and without its vote it could not take part in the election of a controller. Records do
not get this space (`Log.check_room`).

Owned by a `DataDirectory`; touches files only, so it may be used from any thread.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.ports import Files

__all__ = ["Reserve"]

#: some ten thousand changes of a partition's leader
_BYTES: Final = 1 << 20
#: A disk that was full has room again when this much would be left beside the reserve: with less it would be
#: full again in a moment, and its replicas would come and go.
_ROOM_BYTES: Final = 16 << 20


class Reserve:
    """One directory's."""

    __slots__ = ("_directory", "_files", "path")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.path = f"{directory}/reserve"

    def fill(self) -> None:
        """Have the file, whole; OSError where there is no room for it."""
        if self._files.exists(self.path) and self._files.size(self.path) == _BYTES:
            return
        self.free()
        file = self._files.open(self.path, create=True)
        try:
            file.append(bytes(_BYTES))
        except OSError:
            self.free()
            raise
        finally:
            file.close()

    def refill(self) -> bool:
        """Have the file again if there is room beside it; False, or OSError, where there is none."""
        if self._files.space(self._directory).usable < _BYTES + _ROOM_BYTES:
            return False
        self.fill()
        return True

    def free(self) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(self.path)
