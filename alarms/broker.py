"""A Penstock broker whose disk can be slow, nearly full, full or broken, by marker files.

`ALARMS_FAULTS` names the directory of the markers: `slow` delays syncs, `low` leaves a tenth of the volume
free, `full` refuses appends with ENOSPC, `broken` fails syncs of the second data directory with EIO.

Syncs without a marker return at once. Why: a sync of a busy disk can take longer than the limit of the alert
for slow requests, which would then not resolve when `slow` ends. No fault needs more than the page cache.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Final

from penstock.broker.base.system_ports import OsFile, OsFiles
from penstock.cli import main
from penstock.ports import Buffer

__all__ = ["BROKEN", "FAULTS", "FULL", "LOW", "SLOW"]

FAULTS: Final = "ALARMS_FAULTS"
SLOW, LOW, FULL, BROKEN = "slow", "low", "full", "broken"
#: the name of the data directory that breaks
SECOND: Final = "data-2"
_DELAY_S: Final = 0.25


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _install(markers: Path) -> None:
    append, space = OsFile.append, OsFiles.space

    def has(marker: str) -> bool:
        return (markers / marker).exists()

    def faulty_append(file: OsFile, data: Buffer) -> None:
        if has(FULL):
            raise _error(errno.ENOSPC, file.path)
        append(file, data)

    def faulty_sync(file: OsFile) -> None:
        if has(SLOW):
            time.sleep(_DELAY_S)
        if has(BROKEN) and f"/{SECOND}/" in file.path:
            raise _error(errno.EIO, file.path)

    def faulty_sync_volume(file: OsFile) -> bool:
        faulty_sync(file)
        return True

    def faulty_space(files: OsFiles, path: str) -> tuple[int, int]:
        total, free = space(files, path)
        # A volume of this machine that is nearly full is no fault of the run.
        return total, total // 10 if has(LOW) else max(free, total // 2)

    for owner, name, function in (
        (OsFile, "append", faulty_append),
        (OsFile, "sync", faulty_sync),
        (OsFile, "sync_volume", faulty_sync_volume),
        (OsFiles, "space", faulty_space),
    ):
        setattr(owner, name, function)


if __name__ == "__main__":
    _install(Path(os.environ[FAULTS]))
    main()
