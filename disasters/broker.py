"""A Penstock broker whose clock can be wrong and whose disk can be full.

`DISASTERS_CLOCK_MS` is added to the wall clock; timeouts keep the monotonic one. While the file that
`DISASTERS_DISK_FULL` names exists, appends fail with ENOSPC.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from penstock.broker.world import OsFile, SystemClock
from penstock.cli import main
from penstock.ports import Buffer

__all__ = ["CLOCK_MS", "DISK_FULL"]

CLOCK_MS: Final = "DISASTERS_CLOCK_MS"
DISK_FULL: Final = "DISASTERS_DISK_FULL"


def _shift_clock(offset_ms: int) -> None:
    now_ms = SystemClock.now_ms
    setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + offset_ms)  # noqa: B010 - mypy: a method


def _refuse_appends_while(marker: str) -> None:
    append = OsFile.append

    def append_if_room(file: OsFile, data: Buffer) -> None:
        if os.path.exists(marker):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        append(file, data)

    setattr(OsFile, "append", append_if_room)  # noqa: B010 - mypy: a method


if __name__ == "__main__":
    if offset := os.environ.get(CLOCK_MS):
        _shift_clock(int(offset))
    if full := os.environ.get(DISK_FULL):
        _refuse_appends_while(full)
    main()
