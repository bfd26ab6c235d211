"""Whether a data directory can still be trusted, and what an `OSError` means for it.

A full disk is a state that passes: the write is refused, nothing changes, reads go on. Any other error of a
disk means that what we believe of its content may be wrong, so the directory goes offline for good; a failed
`fsync` above all, because the kernel drops the pages that it could not write and the next one would succeed.
Set from worker threads, too: it is one assignment.
"""

from __future__ import annotations

import errno
from typing import Final

from penstock.model.errors import StorageError

__all__ = ["Health"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: The process ran out of something; the disk is as good as before.
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Somebody removed the file: a topic that is being deleted, or a person. That is no word of the disk's.
_GONE: Final = errno.ENOENT


class Health:
    """Shared by everything in one data directory."""

    __slots__ = ("offline",)

    def __init__(self) -> None:
        #: why the directory is offline, None while it is online
        self.offline: str | None = None

    def check(self) -> None:
        if self.offline is not None:
            raise StorageError(f"the data directory is offline: {self.offline}")

    def failed(self, error: OSError, doing: str) -> StorageError:
        """What to raise for `error`; takes the directory offline unless the error passes by itself."""
        reason = f"{doing}: {error}"
        if error.errno not in _FULL and error.errno not in _EXHAUSTED and error.errno != _GONE:
            self.offline = self.offline or reason
        return StorageError(reason)

    def sync_failed(self, error: OSError, doing: str) -> StorageError:
        """As `failed`, for a sync: whatever the disk's error, what was written may be gone."""
        reason = f"{doing}: {error}"
        if error.errno != _GONE:
            self.offline = self.offline or reason
        return StorageError(reason)
