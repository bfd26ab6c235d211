"""Files with private keys, passwords or tokens: only their owner may read them.

The rule is that of PostgreSQL: a file of this user has mode 0600 or less. A file of root may have mode 0640,
because a service manager then gives it to the group of the service.
"""

from __future__ import annotations

import os
import stat

__all__ = ["exposure_of"]


def exposure_of(path: str | os.PathLike[str]) -> str | None:
    """Why other users can read a file, and what to do; None if they cannot, or if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    group = stat.S_IRGRP | stat.S_IWGRP
    others = stat.S_IROTH | stat.S_IWOTH
    forbidden = others | (stat.S_IWGRP if status.st_uid == 0 != os.geteuid() else group)
    if not status.st_mode & forbidden:
        return None
    mode = stat.S_IMODE(status.st_mode)
    return f"other users of this machine can read it (mode {mode:04o}): chmod 600"
