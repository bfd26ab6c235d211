"""`python -m bench.watched FILE up …`: the broker as users start it, and FILE with how late its loop is.

A request that is read waits for whatever the event loop does before it comes to it. A timer of a millisecond
stands for such a request; each time it fires, four bytes are appended: by how many microseconds it was late,
as far as the broker's thread was working meanwhile. Waiting for a core, which on a machine shared with the
clients is most of what a client sees, is therefore not in it. Neighbouring turns may be counted as one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.server import Server
from penstock.broker import server as broker_server
from penstock.cli import main

TICK_S = 0.001
TYPE = "I"


class Lateness:
    """Written in the broker's process, one tick after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop = loop
        self._file = path.open("ab", buffering=0)
        self._due_s = 0.0
        self._worked_s = 0.0

    def start(self) -> None:
        self._worked_s = time.thread_time()
        self._due_s = time.perf_counter() + TICK_S
        self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        late_s = min(time.perf_counter() - self._due_s, time.thread_time() - self._worked_s)
        self._file.write(array(TYPE, [max(0, int(late_s * 1e6))]).tobytes())
        self.start()


def watched(server: Server, folder: Path) -> Path:
    """Have `server`, which is not started yet, watch itself; where it writes that."""
    path = folder / "lateness"
    path.touch()
    _, *arguments = server.command
    server.command = [sys.executable, "-m", "bench.watched", str(path), *arguments]
    return path


@contextmanager
def lateness(path: Path) -> Iterator[list[int]]:
    """Microseconds of each tick while the block ran; filled in when it ends."""
    found: list[int] = []
    before = path.stat().st_size
    yield found
    ticks = array(TYPE)
    size = path.stat().st_size - before
    ticks.frombytes(path.read_bytes()[before : before + size - size % ticks.itemsize])
    found += ticks


def _serve(path: Path, arguments: Sequence[str]) -> None:
    make = broker_server.new_event_loop

    def make_watched() -> asyncio.AbstractEventLoop:
        loop = make()
        loop.call_soon(Lateness(loop, path).start)
        return loop

    broker_server.new_event_loop = make_watched  # type: ignore[assignment]
    sys.argv = ["penstock", *arguments]
    main()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2:])
