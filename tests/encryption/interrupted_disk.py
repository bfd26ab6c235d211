"""Files in memory that end the process at a chosen change."""

from __future__ import annotations

from penstock.storage.memory import MemoryFiles


class Interrupted(Exception):
    """The process ends."""


class Disk(MemoryFiles):
    """Files in memory that end the process at the n-th change."""

    changes_left: int | None = None

    def _change(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise Interrupted
            self.changes_left -= 1

    def write(self, *arguments: object) -> None:
        self._change()
        super().write(*arguments)  # type: ignore[arg-type]

    def move(self, *arguments: object) -> None:
        self._change()
        super().move(*arguments)  # type: ignore[arg-type]

    def unlink(self, *arguments: object) -> None:
        self._change()
        super().unlink(*arguments)  # type: ignore[arg-type]
