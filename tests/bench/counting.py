"""What serving a frame costs, counted instead of timed: the same on every machine and in every run.

A broker on real files, its event loop, and a connection whose socket is ours. A frame is handed over as the
event loop would: into the connection's own buffer, one piece per `recv`. Everything from there to the write
of the answer counts. The functions of this module do not: they stand for the event loop, which is C.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Generator, Sequence
from types import FrameType
from typing import Any, NamedTuple, cast

from penstock.broker.app.broker import Broker
from penstock.net.connection import Connection

#: settings of brokers that do nothing by the clock while we count, however long that takes
CALM = dict.fromkeys(
    (
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
        "log.cleaner.backoff.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "penstock.flush.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ),
    "3600000",
)

#: the exchanges that must go by without another thread, for their memory to be judged
COUNTED_MIN = 3


class Cost(NamedTuple):
    """Per exchange, averaged over many."""

    opcodes: float
    python_calls: float
    c_calls: float
    system_calls: float
    peak_bytes: float
    """The most memory held at once beyond what was held before: a copy of the data shows here."""
    kept_blocks: float
    """Memory blocks that stay behind: growth by the request shows here."""


class Wire:
    """A transport without a loop. Its methods are C functions: they add nothing to what is counted."""

    def __init__(self, here: socket.socket) -> None:
        self.sent: list[Any] = []
        self.write = self.writelines = self.sent.append
        self.get_write_buffer_size = int
        self._extra = {"socket": here}

    def get_extra_info(self, name: str) -> Any:
        return self._extra.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        """A list takes everything."""


class Peer:
    """The client's end of a connection to `broker`."""

    def __init__(self, broker: Broker) -> None:
        here, self._there = socket.socketpair()
        here.setblocking(False)
        self._there.setblocking(False)
        self._here = here
        self._drain = bytearray(1 << 20)
        self.wire = Wire(here)
        self._connection = Connection(broker.stages.listening.server, broker.stages.listening.listeners[0])
        self._connection.connection_made(cast(Any, self.wire))

    def send(self, frame: bytes) -> int:
        """Let the broker have the frame; how many `recv` calls that takes."""
        rest = memoryview(frame)
        calls = 0
        while rest:
            room = self._connection.get_buffer(-1)
            piece = rest[: len(room)]
            room[: len(piece)] = piece
            self._connection.buffer_updated(len(piece))
            rest = rest[len(piece) :]
            calls += 1
        return calls

    def answers(self) -> tuple[int, int]:
        """(writes, bytes) since the last time; bytes include what `sendfile` sent."""
        writes = len(self.wire.sent)
        size = sum(map(len, self.wire.sent))
        self.wire.sent.clear()
        try:
            while True:
                size += self._there.recv_into(self._drain)
        except BlockingIOError:
            return writes, size

    def close(self) -> None:
        self._connection.connection_lost(None)
        self._here.close()
        self._there.close()


class OtherThreads:
    """The threads that run now, such as those of brokers that other tests share.

    They allocate memory whenever they run, and memory is counted for the whole process.
    """

    def __init__(self) -> None:
        here = threading.get_ident()
        threads = [each.ident for each in threading.enumerate() if each.ident not in (None, here)]
        self._clocks = [time.pthread_getcpuclockid(ident) for ident in threads if ident is not None]

    def cpu_ns(self) -> int:
        """The processor time that they have used; equal before and after means that none of them has run."""
        return sum(map(_read_clock, self._clocks))


def _read_clock(clock: int) -> int:
    try:
        return time.clock_gettime_ns(clock)
    except OSError:  # its thread has ended
        return 0


class StepCounter:
    """Counts what the interpreter does, outside this module."""

    def __init__(self) -> None:
        self.opcodes = self.python_calls = self.c_calls = self.system_calls = 0

    def __enter__(self) -> StepCounter:
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.opcodes += 1
        elif event == "call":
            if frame.f_code.co_filename == __file__:
                return None
            self.python_calls += 1
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and frame.f_code.co_filename != __file__:
            self.c_calls += 1
            owner = getattr(argument, "__self__", None)
            if owner is os.pwrite.__self__ or isinstance(owner, socket.socket):  # type: ignore[attr-defined]
                self.system_calls += 1


async def cost_of(
    peer: Peer, exchanges: Sequence[Sequence[bytes]], warm_up: int, others: OtherThreads
) -> Cost:
    """What one exchange costs: its frames sent in turn, all answered by the end of the loop's next turn.

    The first `warm_up` exchanges are not counted, the others are split between the two kinds of counting.
    Memory is not counted for an exchange during which one of the `others` has run.
    """
    half = (len(exchanges) - warm_up) // 2
    for frames in exchanges[:warm_up]:
        await _exchange(peer, frames)
        peer.answers()
    counter = StepCounter()
    calls = 0
    for frames in exchanges[warm_up : warm_up + half]:
        with counter:
            calls += await _exchange(peer, frames)
        writes, size = peer.answers()
        assert size, "no answer"
        calls += writes
    peak, kept = await _memory(peer, exchanges[-half:], others)
    return Cost(
        counter.opcodes / half,
        counter.python_calls / half,
        counter.c_calls / half,
        (counter.system_calls + calls) / half,
        peak,
        kept,
    )


async def _exchange(peer: Peer, frames: Sequence[bytes]) -> int:
    calls = sum(map(peer.send, frames))
    await _Turn()
    return calls


class _Turn:
    """Lets the event loop do what is due now; `asyncio.sleep(0)` would be counted."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def _memory(
    peer: Peer, exchanges: Sequence[Sequence[bytes]], others: OtherThreads
) -> tuple[float, float]:
    """(the most held at once during any exchange, blocks kept per exchange)."""
    counted = peak = kept = 0
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for frames in exchanges:
            used_ns = others.cpu_ns()
            blocks = sys.getallocatedblocks()
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            await _exchange(peer, frames)
            most = tracemalloc.get_traced_memory()[1] - held
            peer.answers()
            more = sys.getallocatedblocks() - blocks
            if others.cpu_ns() == used_ns:
                counted += 1
                peak = max(peak, most)
                kept += more
    finally:
        tracemalloc.stop()
        gc.enable()
    assert counted >= COUNTED_MIN, f"other threads ran during {len(exchanges) - counted} exchanges"
    return peak, kept / counted
