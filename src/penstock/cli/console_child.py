"""The console beside a broker of `penstock up`: a process of its own that ends with the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Final, Self

__all__ = ["ConsoleChild", "end_with_stdin"]

_END_S: Final = 5.0


class ConsoleChild:
    """Starts the console when the broker is ready: `with ConsoleChild(port) as child`.

    The child ends when its standard input is closed, so it also ends with a broker that is killed.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str) -> None:
        command = [sys.executable, "-m", "penstock", "console", "--bootstrap", bootstrap]
        command += ["--port", str(self._port), "--beside-broker"]
        # Ctrl-C goes to the whole process group; the broker decides when the console ends.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_stdin() -> None:
    """Send SIGTERM to this process when its standard input is closed."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
