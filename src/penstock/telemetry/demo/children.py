"""A process of the show: a `penstock` command with a log, in a session of its own.

Its session keeps a terminal's Ctrl-C away from it, because the order in which processes end matters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["Child"]


class Child:
    """`NAME.out` and `NAME.log` in `folder` get what it prints and what it complains about."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.output = folder / f"{name}.out"
        self._arguments = [sys.executable, "-P", "-m", "penstock", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        with self.output.open("wb") as output, self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    def stop(self, number: signal.Signals, patience_s: float) -> None:
        """Ask it to end, and end it with all its session if it takes too long; it may have ended before."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            # It was not waited for, so its number is still its own, and its session's.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def last_words(self) -> str:
        """The last line that it has said."""
        said = [line for path in (self.output, self.log) for line in _lines(path)]
        return said[-1].removeprefix("penstock: ") if said else "it said nothing"


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
