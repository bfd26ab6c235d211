"""Room that a data directory keeps for bad times: a file that goes when the disk is full.

A broker whose disk is full has to go on writing a little: who leads what now (the metadata log), and its
vote. Without that it would tell clients of leaders that are none, and could not even take part when another
controller is elected. Records do not get that room (`Log.check_room`).

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
        if self._files.space(self._directory)[1] < _BYTES + _ROOM_BYTES:
            return False
        self.fill()
        return True

    def free(self) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(self.path)
