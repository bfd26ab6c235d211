"""A Penstock broker whose clock can be wrong and whose disk can be full.

The file that `DISASTERS_CLOCK` names holds milliseconds that are added to the wall clock; timeouts keep the
monotonic one. While the file that `DISASTERS_DISK_FULL` names exists, appends fail with ENOSPC.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Final

from penstock.broker.world import OsFile, SystemClock
from penstock.cli import main
from penstock.ports import Buffer

__all__ = ["CLOCK", "DISK_FULL"]

CLOCK: Final = "DISASTERS_CLOCK"
DISK_FULL: Final = "DISASTERS_DISK_FULL"
_LOOK_S: Final = 0.2


class _ShiftedClock:
    """Adds what the file says, which is read again every now and then: a clock may be set at run time."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._offset_ms = 0
        self._looked_at = float("-inf")

    def offset_ms(self) -> int:
        now = time.monotonic()
        if now - self._looked_at > _LOOK_S:
            self._looked_at = now
            with suppress(OSError, ValueError), open(self._file) as file:
                self._offset_ms = int(file.read())
        return self._offset_ms


def _shift_clock(file: str) -> None:
    now_ms = SystemClock.now_ms
    shifted = _ShiftedClock(file)
    setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + shifted.offset_ms())  # noqa: B010 - mypy: a method


def _refuse_appends_while(marker: str) -> None:
    append = OsFile.append

    def append_if_room(file: OsFile, data: Buffer) -> None:
        if os.path.exists(marker):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        append(file, data)

    setattr(OsFile, "append", append_if_room)  # noqa: B010 - mypy: a method


if __name__ == "__main__":
    if clock := os.environ.get(CLOCK):
        _shift_clock(clock)
    if full := os.environ.get(DISK_FULL):
        _refuse_appends_while(full)
    main()
