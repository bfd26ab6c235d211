"""Redirects the standard error of Spark's JVM to a file, and quotes its errors.

Why: a starting JVM prints half a dozen warnings, which hide the output of the command.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.cli.failure import Failure
from penstock.cli.log_file import open_log

__all__ = ["SparkLog"]

_STANDARD_ERROR: Final = 2
_NAME: Final = "spark.log"
#: lines to look for first in the output of a JVM that has ended
_ERROR_MARKS: Final = ("Error", "error", "Exception", "ERROR")
_KILLED: Final = "was killed with SIGKILL"
_TAIL_BYTES: Final = 20_000


class SparkLog:
    """The file for the JVM's standard error; no redirection if `path` is None."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        #: what the file has before this place belongs to an earlier attempt or process
        self._since: int | None = None

    @classmethod
    def beside(cls, tables: str, wanted: str) -> SparkLog:
        """The `wanted` file, `-` for none; by default a file beside local tables."""
        if wanted == "-":
            return cls(None)
        if wanted:
            return cls(Path(wanted))
        if "://" in tables:
            return cls(Path(tempfile.gettempdir()) / f"penstock-{os.getpid()}-{_NAME}")
        return cls(Path(tables) / "_queries" / _NAME)

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """Processes that start meanwhile have the file as their standard error."""
        if self.path is None:
            yield
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            log = open_log(self.path)
        except OSError as error:
            raise Failure(
                f"cannot write {self.path}: {error.strerror}; choose another --spark-log"
            ) from error
        if self._since is None:
            self.mark()
        sys.stderr.flush()
        own = os.dup(_STANDARD_ERROR)
        try:
            os.dup2(log, _STANDARD_ERROR)
            yield
        finally:
            sys.stderr.flush()
            os.dup2(own, _STANDARD_ERROR)
            os.close(own)
            os.close(log)

    def mark(self) -> None:
        """Quote only what the JVM prints from now on."""
        if self.path is not None:
            self._since = self.path.stat().st_size if self.path.is_file() else 0

    def failure(self, what: str, error: BaseException) -> Failure:
        """The first line of `error`, the last error that the JVM printed, and the file's name."""
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        # A JVM that was killed has printed nothing about it.
        said = "" if _KILLED in reason else self._last_error()
        parts = [f"{what}: {reason}", f"Spark said: {said}" if said else "", self._hint()]
        return Failure("; ".join(part for part in parts if part))

    def _hint(self) -> str:
        return "" if self.path is None else f"see {self.path}"

    def _last_error(self) -> str:
        if self.path is None or not self.path.is_file():
            return ""
        with self.path.open("rb") as file:
            file.seek(max(self._since or 0, self.path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
        marked = [line.strip() for line in lines if any(mark in line for mark in _ERROR_MARKS)]
        return marked[-1] if marked else ""
