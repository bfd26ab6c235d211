"""A Penstock broker whose disk can be slow, nearly full, full or broken, by marker files.

`ALARMS_FAULTS` names the directory of the markers: `slow` delays syncs, `low` leaves a tenth of the volume
free, `full` refuses appends with ENOSPC, `broken` fails syncs of the second data directory with EIO, `ahead`
sets the wall clock two days ahead, or by the milliseconds in it, and `skewed` a minute, `stalled` holds up
the event loop with each append, `crowded` opens most of the file descriptors.

Syncs without a marker return at once. Why: a sync of a busy disk can take longer than the limit of the alert
for slow requests, which would then not resolve when `slow` ends. No fault needs more than the page cache.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from pathlib import Path
from typing import Final

from penstock.broker.base.system_ports import OsFile, OsFiles, SystemClock
from penstock.cli import main
from penstock.ports import Buffer, Space

__all__ = ["AHEAD", "BROKEN", "CROWDED", "FAULTS", "FULL", "LOW", "SKEWED", "SLOW", "STALLED"]

FAULTS: Final = "ALARMS_FAULTS"
SLOW, LOW, FULL, BROKEN, AHEAD = "slow", "low", "full", "broken", "ahead"
SKEWED, STALLED, CROWDED = "skewed", "stalled", "crowded"
#: the name of the data directory that breaks
SECOND: Final = "data-2"
_DELAY_S: Final = 0.25
_AHEAD_MS: Final = 2 * 86_400_000
_SKEWED_MS: Final = 60_000
_STALL_S: Final = 0.2
#: the share of the descriptors that `crowded` opens
_CROWDED: Final = 0.85


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _ahead_ms(marker: Path) -> int:
    """The milliseconds that the marker contains, two days if it is empty, 0 if there is none."""
    try:
        return int(marker.read_text() or _AHEAD_MS)
    except FileNotFoundError:
        return 0


def _install(markers: Path) -> None:
    append, space, now_ms = OsFile.append, OsFiles.space, SystemClock.now_ms

    def has(marker: str) -> bool:
        return (markers / marker).exists()

    def faulty_append(file: OsFile, data: Buffer) -> None:
        if has(FULL):
            raise _error(errno.ENOSPC, file.path)
        if has(STALLED):
            time.sleep(_STALL_S)
        append(file, data)

    def faulty_sync(file: OsFile) -> None:
        if has(SLOW):
            time.sleep(_DELAY_S)
        if has(BROKEN) and f"/{SECOND}/" in file.path:
            raise _error(errno.EIO, file.path)

    def faulty_sync_volume(file: OsFile) -> bool:
        faulty_sync(file)
        return True

    def faulty_space(files: OsFiles, path: str) -> Space:
        total, free, _ = space(files, path)
        # A volume of this machine that is nearly full is no fault of the run.
        return Space(total, total // 10 if has(LOW) else max(free, total // 2))

    def faulty_now_ms(clock: SystemClock) -> int:
        return now_ms(clock) + (_ahead_ms(markers / AHEAD) or (_SKEWED_MS if has(SKEWED) else 0))

    def crowd() -> None:
        """Hold descriptors while there is the marker."""
        kept: list[int] = []
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        while True:
            if has(CROWDED):
                while len(os.listdir("/proc/self/fd")) < limit * _CROWDED:
                    kept.append(os.open(os.devnull, os.O_RDONLY))
            else:
                while kept:
                    os.close(kept.pop())
            time.sleep(1)

    threading.Thread(target=crowd, daemon=True).start()

    for owner, name, function in (
        (SystemClock, "now_ms", faulty_now_ms),
        (OsFile, "append", faulty_append),
        (OsFile, "sync", faulty_sync),
        (OsFile, "sync_volume", faulty_sync_volume),
        (OsFiles, "space", faulty_space),
    ):
        setattr(owner, name, function)


if __name__ == "__main__":
    _install(Path(os.environ[FAULTS]))
    main()
