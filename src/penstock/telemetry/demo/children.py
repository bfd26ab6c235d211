"""A process of the show: a `penstock` command with a log, in a session of its own.

Its session keeps a terminal's Ctrl-C away from it, because the order in which processes end matters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["Child"]

_LOOK_S: Final = 0.05


class Child:
    """`NAME.out` and `NAME.log` in `folder` get its standard output and standard error."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.output = folder / f"{name}.out"
        self._arguments = [sys.executable, "-P", "-m", "penstock", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        with _opened(self.output) as output, _opened(self.log) as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        process = self._process
        if process is None or process.returncode is not None:
            return None if process is None else process.returncode
        # Without reaping it: until then its pid cannot be reused, by which `stop` ends its session.
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def stop(self, number: signal.Signals, patience_s: float) -> None:
        """Terminate the process, kill it if that takes too long, and kill the rest of its session.

        A JVM whose Python was interrupted while it started goes on for ever, for one.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        if self.exit_code is None:
            process.send_signal(number)
            deadline = time.monotonic() + patience_s
            while self.exit_code is None and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log_lines(self) -> list[str]:
        """The lines of its standard error so far."""
        return _lines(self.log)

    def last_words(self) -> str:
        """The last line that it has said."""
        said = [line for path in (self.output, self.log) for line in _lines(path)]
        return said[-1].removeprefix("penstock: ") if said else "no output"


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]


def _opened(path: Path) -> BinaryIO:
    """An empty file that only its owner can read: logs have names of users and topics."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
