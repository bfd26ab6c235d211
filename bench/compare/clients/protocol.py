"""The part of a load client that does not depend on its library: jobs, clocks, and JSON lines.

The parent sends a job as one line. The client connects and says that it is ready, the parent says go, and the
client answers with its result. Only the time between go and the result counts:

    > {"do": "produce", "address": "127.0.0.1:4222", "target": "t", "size": 1024, "batched": true, …}
    < {"ready": true}
    > {"go": true}
    < {"messages": 81000, "seconds": 5.01, "cpu": 4.9}

A job that fails is answered with {"failed": "…"}, and the client waits for the next one. The process ends
with its standard input.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import struct
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

BATCH = 500
"""Messages that a client without batching of its own puts into one batch."""
WORK_BATCH = 100
"""Messages that a worker takes at a time; it acknowledges each."""
IDLE_S = 2.0
"""A reader that got nothing for so long has seen everything."""
WARM_MESSAGES = 50
_NUMBER = struct.Struct(">q")
_NOT_TIMED = 0
_Item = TypeVar("_Item")
POLL_S = 0.2
"""A reader yields an empty batch after so long without a message."""


class LoadClient(ABC):
    """The operations that are measured, on one target: a topic, a stream or a queue of one library.

    `open` connects; nothing else may need a new connection. A reader first yields an empty batch, before the
    server sends it anything, and again whenever there is nothing to read for a moment.
    """

    is_blocking = False
    """True if calls block the thread. Then the thread itself waits for the time of the next message."""

    def __init__(self, address: str, target: str, options: dict[str, Any]) -> None:
        self.address = address
        self.target = target
        self.options = options
        """`replicas`, and what the client of one system needs."""

    @property
    def replicas(self) -> int:
        return int(self.options.get("replicas", 1))

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def create(self) -> None:
        """Make the target, empty, as durable as its class says."""

    @abstractmethod
    async def remove(self) -> None: ...

    @abstractmethod
    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        """Send all payloads, many at a time; returns when all are acknowledged.

        With `acked`, call it for each payload when its acknowledgement arrives.
        """

    @abstractmethod
    async def send_one(self, payload: bytes) -> None:
        """Send one message; returns when it is acknowledged."""

    @abstractmethod
    async def send_soon(self, payload: bytes) -> None:
        """Send one message at once, and do not wait for its acknowledgement."""

    @abstractmethod
    def read(self) -> AsyncIterator[list[bytes]]:
        """Everything from the beginning, in the batches of the library, without acknowledgement."""

    @abstractmethod
    def read_one(self) -> AsyncIterator[list[bytes]]:
        """One message at a time; its position or acknowledgement is sent before the next one is taken."""

    def work(self) -> AsyncIterator[list[bytes]]:
        """A work queue: up to `WORK_BATCH` messages at a time, each acknowledged before the next batch."""
        raise NotImplementedError("the system has no work queue")


class Arrivals(Generic[_Item]):
    """What a library hands to a callback, for a reader: batches of all that has arrived since the last."""

    def __init__(self) -> None:
        self._arrived: list[_Item] = []
        self._changed = asyncio.Event()

    def add(self, item: _Item) -> None:
        self._arrived.append(item)
        self._changed.set()

    async def batches(self) -> AsyncIterator[list[_Item]]:
        while True:
            if not self._arrived:
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), POLL_S)
                except TimeoutError:
                    yield []
                    continue
            taken, self._arrived[:] = self._arrived[:], []
            yield taken


class Clock:
    """Measures from go to the end, and says when the time or the messages of a job are used up."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._most = int(job.get("most", 1 << 60))
        self.began = time.perf_counter()
        self._ends = self.began + float(job.get("seconds", 3600))
        self._cpu = time.process_time()

    def is_over(self, messages: int) -> bool:
        return messages >= self._most or time.perf_counter() >= self._ends

    def result(self, messages: int) -> dict[str, Any]:
        cpu = time.process_time() - self._cpu
        return {"messages": messages, "seconds": time.perf_counter() - self.began, "cpu": cpu}


def serve(kind: Callable[[str, str, dict[str, Any]], LoadClient]) -> None:
    """Run jobs from standard input until it ends."""
    for line in sys.stdin:
        job = json.loads(line)
        try:
            result = _run(_perform(kind(job["address"], job["target"], job.get("options", {})), job))
        except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
            result = {"failed": f"{type(error).__name__}: {error}"[:500]}
        _say(result)
        gc.collect()


def _run(work: Any) -> dict[str, Any]:
    """Run a coroutine on the faster event loop, if there is one."""
    try:
        import uvloop
    except ImportError:
        return dict(asyncio.run(work))
    return dict(uvloop.run(work))


async def _perform(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    perform: dict[str, Callable[[LoadClient, dict[str, Any]], Any]] = {
        "create": _create,
        "remove": _remove,
        "produce": _produce,
        "consume": _consume,
        "work": _work,
        "send": _send_at_rate,
        "receive": _receive,
        "log": _log,
        "list": _list,
    }
    await client.open()
    try:
        return dict(await perform[job["do"]](client, job))
    finally:
        # The server may be gone: that is the point of some jobs.
        try:
            await asyncio.wait_for(client.close(), 5)
        except Exception:  # noqa: BLE001 - the result is there
            sys.stderr.write("the connection did not close properly\n")


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _go(job: dict[str, Any]) -> Clock:
    """Say that everything is connected, and wait for the parent. The event loop stands still until then."""
    _say({"ready": True})
    if not sys.stdin.readline():
        raise EOFError("the parent has gone")
    return Clock(job)


async def _create(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    await client.create()
    return {}


async def _remove(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    await client.remove()
    return {}


async def _produce(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    payload = os.urandom(job["size"])
    if not job["batched"]:
        await client.send_one(payload)
        clock, sent = _go(job), 0
        while not clock.is_over(sent):
            await client.send_one(payload)
            sent += 1
        return clock.result(sent)
    await client.send_batched(iter([payload]), None)
    clock = _go(job)
    counted = _Counted(payload, clock)
    await client.send_batched(counted, None)
    return clock.result(counted.messages)


class _Counted(Iterator[bytes]):
    """The same payload again and again, until the clock is over."""

    def __init__(self, payload: bytes, clock: Clock) -> None:
        self._payload, self._clock = payload, clock
        self.messages = 0

    def __next__(self) -> bytes:
        # A look at the clock for every message would cost as much as some clients take to send one.
        if self.messages & 15 == 0 and self._clock.is_over(self.messages):
            raise StopIteration
        self.messages += 1
        return self._payload


async def _consume(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    return await _read(client.read() if job["batched"] else client.read_one(), job)


async def _work(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    return await _read(client.work(), job)


async def _read(batches: AsyncIterator[list[bytes]], job: dict[str, Any]) -> dict[str, Any]:
    """Read until the job's messages have come, its time is over, or nothing comes any more."""
    await anext(batches)
    clock, read = _go(job), 0
    result, last = clock.result(read), time.perf_counter()
    while not clock.is_over(read):
        batch = await anext(batches)
        if batch:
            read += len(batch)
            result, last = clock.result(read), time.perf_counter()
        elif time.perf_counter() - last > IDLE_S:
            break
    return result


async def _send_at_rate(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    """Send each message when it is due, late or not. The message has the time at which it was due."""
    padding = os.urandom(job["size"] - _NUMBER.size)
    for _ in range(WARM_MESSAGES):
        await client.send_soon(_NUMBER.pack(_NOT_TIMED) + padding)
        await asyncio.sleep(0.002)
    clock = _go(job)
    count, gap_ns = int(job["count"]), int(1e9 / job["rate"])
    began = time.monotonic_ns() + 50_000_000
    async for number in _paced(count, began, gap_ns, client.is_blocking):
        await client.send_soon(_NUMBER.pack(began + number * gap_ns) + padding)
    result = clock.result(count)
    # What was sent last still has to leave the client.
    await asyncio.sleep(0.5)
    return result


async def _paced(count: int, began_ns: int, gap_ns: int, is_blocking: bool) -> AsyncIterator[int]:
    """The numbers up to `count`, each at its time.

    Timers of event loops have a resolution of a millisecond, so a thread keeps the time.
    """
    if is_blocking:
        for number in range(count):
            _sleep_until(began_ns + number * gap_ns)
            yield number
        return
    due: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def keep_time() -> None:
        for number in range(count):
            _sleep_until(began_ns + number * gap_ns)
            loop.call_soon_threadsafe(due.put_nowait, number)

    threading.Thread(target=keep_time, daemon=True).start()
    for _ in range(count):
        yield await due.get()


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


async def _receive(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    """Latencies from the time at which a message was due to its arrival, in milliseconds."""
    batches = client.read()
    await anext(batches)
    clock = _go(job)
    waits: list[float] = []
    last = time.perf_counter()
    while len(waits) < job["count"] and time.perf_counter() - last < job["patience"]:
        for payload in await anext(batches):
            last = time.perf_counter()
            (due,) = _NUMBER.unpack_from(payload)
            if due != _NOT_TIMED:
                waits.append((time.monotonic_ns() - due) / 1e6)
    waits.sort()
    return {**clock.result(len(waits)), **{name: at(waits, share) for name, share in PERCENTILES.items()}}


PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def at(ordered: list[float], share: float) -> float:
    """The value that this share of the values do not exceed; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


async def _log(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    """Send numbered messages until the parent says stop; the result has the acknowledged numbers.

    The client says when the first message was acknowledged.
    """
    padding = os.urandom(max(0, job["size"] - _NUMBER.size))
    acknowledged: list[int] = []
    stopped = threading.Event()
    clock = _go(job)
    waiting = threading.Thread(target=_wait_for_stop, args=(stopped,), daemon=True)
    waiting.start()

    def acked(payload: bytes) -> None:
        if not acknowledged:
            _say({"acknowledged": True})
        acknowledged.append(number_of(payload))

    def numbered() -> Iterator[bytes]:
        number = 0
        while not stopped.is_set() and not clock.is_over(number):
            yield _NUMBER.pack(number) + padding
            number += 1

    sending = asyncio.ensure_future(client.send_batched(numbered(), acked))
    while not sending.done() and not stopped.is_set():
        await asyncio.wait([sending], timeout=0.05)
    # Acknowledgements that are on their way may still arrive; the connection may also be gone.
    await asyncio.wait([sending], timeout=1.0)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    # The next line of the parent is for this thread, also if sending ended early.
    await asyncio.to_thread(waiting.join)
    return {**clock.result(len(acknowledged)), "numbers": as_ranges(acknowledged)}


def _wait_for_stop(stopped: threading.Event) -> None:
    sys.stdin.readline()
    stopped.set()


async def _list(client: LoadClient, job: dict[str, Any]) -> dict[str, Any]:
    """The numbers of all messages that are there, and how many were there more than once."""
    batches, found = client.read(), []
    last = time.perf_counter()
    while time.perf_counter() - last < IDLE_S:
        for payload in await anext(batches):
            last = time.perf_counter()
            found.append(number_of(payload))
    return {"messages": len(found), "repeated": len(found) - len(set(found)), "numbers": as_ranges(found)}


def number_of(payload: bytes) -> int:
    (number,) = _NUMBER.unpack_from(payload)
    return int(number)


def as_ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers as (first, last) pairs, ascending and without repetition."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
