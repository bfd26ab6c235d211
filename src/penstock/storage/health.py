"""The health of a data directory, and the meaning of an `OSError` for it.

A full disk is temporary: the write is refused, the log does not change, and reads go on. From the first such
refusal until there is space again (`DataDirectory.has_room`), the directory takes no records. The space that
is left is for the cluster's metadata, so that the broker still learns of leader changes.

After any other error of a disk, its content may differ from the state in memory, so the directory goes
offline for good. This holds above all for a failed `fsync`: the kernel drops the pages that it could not
write, and the next `fsync` would succeed.

Worker threads set these attributes, too: each is one assignment.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.model.errors import StorageError

__all__ = ["DAMAGED", "Health"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: The process ran out of something; the disk is as good as before.
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_EXHAUSTED: Final = _NO_DESCRIPTOR | {errno.ENOMEM}
#: A file that authenticates its content has found other bytes: damage of that file, not an error of the disk.
DAMAGED: Final = errno.EBADMSG
#: The file was removed, by the deletion of a topic or by hand: not an error of the disk.
_GONE: Final = errno.ENOENT
#: Names or permissions that a person changed: a file or a dangling link in the place of a folder, say.
_PATH: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
    }
)


class Health:
    """Shared by everything in one data directory."""

    __slots__ = ("_free_reserve", "full", "offline")

    def __init__(self, free_reserve: Callable[[], None] = lambda: None) -> None:
        """`free_reserve` frees the space for files that must be written on a full disk, too."""
        self._free_reserve = free_reserve
        #: why the directory is offline, None while it is online
        self.offline: str | None = None
        #: the operation that found the disk full, None while there is space
        self.full: str | None = None

    @property
    def is_well(self) -> bool:
        """Returns true if records can be written."""
        return self.offline is None and self.full is None

    def check(self) -> None:
        if self.offline is not None:
            raise StorageError(f"the data directory is offline: {self.offline}")

    @contextmanager
    def disk(self, doing: str) -> Iterator[None]:
        """Check that the directory is online, and turn an OSError into the error of the directory."""
        self.check()
        try:
            yield
        except OSError as e:
            raise self.failed(e, f"cannot {doing}") from e

    def failed(self, error: OSError, doing: str) -> StorageError:
        """The error to raise for `error`. Takes the directory offline unless the error is temporary."""
        reason = f"{doing}: {error}"
        if error.errno in _FULL:
            if self.full is None:
                self.full = reason
                self._free_reserve()
        elif error.errno not in _EXHAUSTED and error.errno not in (_GONE, DAMAGED):
            self.offline = self.offline or reason
        return StorageError(reason)

    def path_failed(self, error: OSError, doing: str) -> StorageError:
        """As `failed`, for an attempt to find or make a partition's files.

        An error of their names or permissions concerns that partition alone.
        """
        if error.errno in _PATH:
            return StorageError(f"{doing}: {error}")
        return self.failed(error, doing)

    def sync_failed(self, error: OSError, doing: str) -> StorageError:
        """As `failed`, for a sync: after any error of the disk, written data may be gone.

        Without a descriptor nothing was tried, so the sync can be tried again.
        """
        if error.errno in _NO_DESCRIPTOR:
            return StorageError(f"{doing}: {error}")
        return self.left_half_done(error, doing)

    def write_rest(self, write: Callable[[], None], doing: str) -> None:
        """Do the last step of a change that cannot be taken back. A full disk has the reserve for it."""
        try:
            try:
                write()
            except OSError as e:
                if e.errno not in _FULL or self.full is not None:
                    raise
                self.failed(e, f"cannot {doing}")
                write()
        except OSError as e:
            raise self.left_half_done(e, f"cannot {doing}") from e

    def left_half_done(self, error: OSError, doing: str) -> StorageError:
        """As `failed`, for a change of several steps: after any error, its outcome is not known."""
        reason = f"{doing}: {error}"
        if error.errno != _GONE:
            self.offline = self.offline or reason
        return StorageError(reason)
