"""The file with the time of a broker, which it saves while it runs and before it stops.

    1
    1
    NODE_ID DIRECTORY_ID BELIEVED_MS WALL_MS HELD_MS WATCHED_SINCE_MS ROUND_WAITED_MS
    CRC32C

The next start compares the wall clock with it. A file that is missing, damaged, or of another node or data
directory says nothing, and the time before the stop counts as unknown. An older copy of the file makes the
stop look longer. Both make the broker more careful.
"""

from __future__ import annotations

from typing import Final

from penstock.model.errors import PenstockError
from penstock.ports import Files
from penstock.storage.checkpoint import format_checked, is_checked, parse_checkpoint
from penstock.timekeeping.trust import SavedClock

__all__ = ["CLOCK_FILE", "ClockFile", "ClockFileRefused"]

CLOCK_FILE: Final = "clock-checkpoint"


class ClockFileRefused(PenstockError):
    """A file that says nothing about the time before the stop."""


class ClockFile:
    """The file of one data directory, which is that of the metadata log."""

    def __init__(self, files: Files, directory: str, node_id: int, directory_id: str) -> None:
        self._files = files
        self.path = f"{directory}/{CLOCK_FILE}"
        self._owner = [str(node_id), directory_id]

    def write(self, saved: SavedClock) -> None:
        """Replace the file durably. May wait for the disk."""
        line = " ".join([*self._owner, *map(str, saved)])
        self._files.write_atomic(self.path, format_checked([line]))

    def read(self) -> SavedClock | None:
        """The saved time; None without a file. ClockFileRefused if it is damaged, or of another broker."""
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            return None
        except (OSError, PenstockError) as e:
            raise ClockFileRefused(f"it cannot be read: {e}") from e
        try:
            if not is_checked(data):
                raise ValueError("it has no checksum")
            (line,) = parse_checkpoint(data)
            node_id, directory_id, *numbers = line.split(" ")
            if len(numbers) != len(SavedClock._fields):
                raise ValueError(f"it has {len(numbers)} numbers")
            saved = SavedClock(*map(int, numbers))
        except (ValueError, TypeError) as e:
            raise ClockFileRefused(f"it is damaged: {e}") from e
        if [node_id, directory_id] != self._owner:
            raise ClockFileRefused(f"it is the file of node {node_id} and directory {directory_id}")
        return saved
