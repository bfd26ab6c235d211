"""A Penstock broker whose clock can be wrong, whose disk can be full and whose memory can be faulty.

The file that `DISASTERS_CLOCK` names holds milliseconds that are added to the wall clock; timeouts keep the
monotonic one. While the file that `DISASTERS_DISK_FULL` names exists, appends fail with ENOSPC. While the
file that `DISASTERS_MEMORY` names exists, a bit of every topic that is applied to the metadata image is
flipped.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import Final

from penstock.broker.base.system_ports import OsFile, SystemClock
from penstock.cli import main
from penstock.metadata.image import ClusterImage
from penstock.ports import Buffer
from penstock.wire.metadata_records import TopicRecord

__all__ = ["CLOCK", "DISK_FULL", "MEMORY"]

CLOCK: Final = "DISASTERS_CLOCK"
DISK_FULL: Final = "DISASTERS_DISK_FULL"
MEMORY: Final = "DISASTERS_MEMORY"
_LOOK_S: Final = 0.2


class _ShiftedClock:
    """Adds the offset in a file, which is read again regularly: a test can set the clock at run time."""

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


def _flip_bits_while(marker: str) -> None:
    apply = ClusterImage.apply

    def apply_flipped(image: ClusterImage, record: object, offset: int) -> None:
        apply(image, record, offset)
        if isinstance(record, TopicRecord) and os.path.exists(marker):
            image.topics[record.name].created_ms ^= 1 << 8

    setattr(ClusterImage, "apply", apply_flipped)  # noqa: B010 - mypy: a method


if __name__ == "__main__":
    if clock := os.environ.get(CLOCK):
        _shift_clock(clock)
    if full := os.environ.get(DISK_FULL):
        _refuse_appends_while(full)
    if memory := os.environ.get(MEMORY):
        _flip_bits_while(memory)
    main()
