"""`python -m bench.watched FILE up …`: the broker as users start it, and FILE with the delay of its loop.

A request that arrives waits for the callbacks that the event loop runs before it. A timer of one millisecond
takes the place of such a request. Each time it fires, four bytes are appended to FILE: its delay in
microseconds, up to the processor time of the broker's thread since the last time. So neither the resolution
of the timer counts nor the wait for a core, which is most of the latency on a machine that is shared with the
clients and not caused by the broker. Short callbacks in a row may count as one, so the result is rather too
high than too low.
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
from penstock.broker.app import server as broker_server
from penstock.cli import main

TICK_NS = 1_000_000
TYPE = "I"


class Lateness:
    """Written in the broker's process, one tick after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop = loop
        self._file = path.open("ab", buffering=0)
        self._due_ns = 0
        self._worked_ns = 0

    def start(self) -> None:
        self._worked_ns = time.thread_time_ns()
        self._due_ns = time.perf_counter_ns() + TICK_NS
        self._loop.call_later(TICK_NS / 1e9, self._tick)

    def _tick(self) -> None:
        late_ns = min(time.perf_counter_ns() - self._due_ns, time.thread_time_ns() - self._worked_ns)
        self._file.write(array(TYPE, [max(0, late_ns // 1000)]).tobytes())
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
