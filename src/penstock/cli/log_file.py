"""The log file of a broker process: its standard error, which is renamed to FILE.1 when it is large.

The file stays the standard error of the process, so output of the interpreter goes there, too. The broker and
one older file use at most about twice the limit, whatever is logged. Only the owner can read log files: they
have the names of users, topics and addresses.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["LOG_FILE_BYTES", "RotatingFile", "open_log"]

LOG_FILE_BYTES: Final = 64 << 20
_MODE: Final = 0o600


def open_log(path: str | os.PathLike[str], flags: int = os.O_APPEND) -> int:
    """A descriptor of a log file that only its owner can read; a file of an earlier version is made so."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, _MODE)
    status = os.fstat(descriptor)
    # A device, or a file of another user that this one may write to, keeps its mode.
    if (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) != _MODE
        and status.st_uid == os.geteuid()
    ):
        os.fchmod(descriptor, _MODE)
    return descriptor


class RotatingFile:
    """Writes lines to a descriptor that is open on a file, and replaces the file when it is large."""

    def __init__(self, path: Path, descriptor: int, limit_bytes: int = LOG_FILE_BYTES) -> None:
        """`descriptor` is the standard error of the process: it stays open, on another file."""
        from penstock.broker.base.descriptor_writes import write_all

        self._write_all = write_all
        self._path = path
        self._older = path.with_name(f"{path.name}.1")
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        # A log of an earlier version may be readable for all users.
        for name in (self._path, self._older):
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if name.is_file():
                    name.chmod(_MODE)

    def write(self, data: bytes) -> None:
        self._write_all(self._descriptor, data)
        if os.fstat(self._descriptor).st_size >= self._limit_bytes:
            self._replace()

    def _replace(self) -> None:
        try:
            # A file that the user has moved away is not ours to rename.
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                os.replace(self._path, self._older)
            opened = open_log(self._path)
        except OSError:
            # The log goes on in the same file.
            self._limit_bytes *= 2
            return
        os.dup2(opened, self._descriptor)
        os.close(opened)
