"""A guard process that ends the processes of the demo if the parent is killed.

A process that is killed cannot end its children. This one holds the other end of a pipe, which closes then.
It identifies a process by a pidfd, not by a pid that can be reused; on systems without pidfds (other than
Linux) there is no guard.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

__all__ = ["Watchman", "watching"]

_DISMISSED: Final = "dismissed"
#: how long processes may take to end in order
_GRACE_S: Final = 20.0


class Watchman:
    """Register a process that must not outlive the parent."""

    __slots__ = ("_pipe",)

    def __init__(self, pipe: IO[str] | None) -> None:
        self._pipe = pipe

    def watch(self, *pids: int) -> None:
        self._say(*map(str, pids))

    def dismiss(self) -> None:
        """All has ended in order."""
        self._say(_DISMISSED)

    def _say(self, *words: str) -> None:
        if self._pipe is not None:
            # The show goes on without a watchman.
            with suppress(BrokenPipeError):
                # Without the buffer: bytes left in it would fail again when the pipe is closed.
                os.write(self._pipe.fileno(), "".join(f"{word}\n" for word in words).encode())


@contextmanager
def watching() -> Iterator[Watchman]:
    """A watchman at work, in a process and session of its own."""
    if not hasattr(os, "pidfd_open"):
        yield Watchman(None)
        return
    # By its file, which needs nothing but Python: there in a moment, and hardly noticed.
    command = [sys.executable, "-I", __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as process:
        watchman = Watchman(process.stdin)
        try:
            yield watchman
        finally:
            watchman.dismiss()


def _watch(words: IO[str]) -> None:
    """Wait until dismissed, or until the parent is gone; then end the registered processes."""
    watched: list[int] = []
    for word in map(str.strip, words):
        if word == _DISMISSED:
            return
        # One that has ended since, or that the system does not let us watch.
        with suppress(OSError):
            watched.append(os.pidfd_open(int(word)))
    for number in (signal.SIGTERM, signal.SIGKILL):
        for each in watched:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(each, number)
        watched = _still_alive(watched)


def _still_alive(watched: list[int]) -> list[int]:
    """Those of them that have not ended in time."""
    left, poll = set(watched), select.poll()
    for each in watched:
        poll.register(each, select.POLLIN)
    while left and (ended := poll.poll(_GRACE_S * 1000)):
        for each, _ in ended:
            poll.unregister(each)
            left.discard(each)
    return [*left]


if __name__ == "__main__":
    _watch(sys.stdin)
