"""The log file of a broker process: its standard error, which is renamed to FILE.1 when it is large.

The file stays the standard error of the process, so output of the interpreter goes there, too. The broker and
one older file use at most about twice the limit, whatever is logged.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, TextIO, cast

__all__ = ["LOG_FILE_BYTES", "rotating"]

LOG_FILE_BYTES: Final = 64 << 20
_MODE: Final = 0o644


class _RotatingStream:
    """Writes to `stream`, whose descriptor is that of the file, and replaces the file when it is large."""

    def __init__(self, stream: TextIO, path: Path, limit_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._limit_bytes = limit_bytes

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        """Called after each line of the log."""
        self._stream.flush()
        if os.fstat(self._stream.fileno()).st_size >= self._limit_bytes:
            self._replace()

    def isatty(self) -> bool:
        return False

    def _replace(self) -> None:
        descriptor = self._stream.fileno()
        try:
            # A file that the user has moved away is not ours to rename.
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
            opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _MODE)
        except OSError:
            # The log goes on in the same file.
            self._limit_bytes *= 2
            return
        os.dup2(opened, descriptor)
        os.close(opened)


def rotating(path: Path, stream: TextIO | None = None, limit_bytes: int = LOG_FILE_BYTES) -> TextIO:
    """A stream for log lines to a file that is the standard error of this process, or `stream`."""
    return cast(TextIO, _RotatingStream(stream or sys.stderr, path, limit_bytes))
