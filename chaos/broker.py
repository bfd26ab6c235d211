"""A broker whose disk can be full: `penstock`, on files that refuse to grow while a marker file exists.

Only appends are refused, with ENOSPC, as by a file system without room. A real one would have to be mounted,
which takes root, and would stay behind when this process is killed.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from penstock.broker.base.system_ports import OsFile
from penstock.cli import main
from penstock.ports import Buffer

#: names the marker file, in the environment of the process
MARKER: Final = "CHAOS_DISK_IS_FULL"


def _refuse_while_marked(marker: str) -> None:
    append = OsFile.append

    def append_if_room(file: OsFile, data: Buffer) -> None:
        if os.path.exists(marker):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        append(file, data)

    setattr(OsFile, "append", append_if_room)  # noqa: B010 - mypy takes a plain one for a mistake


if __name__ == "__main__":
    _refuse_while_marked(os.environ[MARKER])
    main()
