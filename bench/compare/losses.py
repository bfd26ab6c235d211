"""Servers of a workload's own: their start, and what they lose when they are killed or their power fails."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.compare.child import Job, JobFailed
from bench.compare.classes import DurabilityClass
from bench.compare.systems import System, made
from bench.compare.workloads import LIFE, Bench, Size
from bench.process import resident_bytes, thread_seconds
from bench.table import Values
from lab.volatile_disk import VolatileDisk

__all__ = ["kill", "lost", "power_failure", "start"]

_SETTLE_S = 0.5
_MESSAGE_BYTES = 200
_RECOVERY_S = 90.0
_NAMES_S = 3.0


def start(
    contender: str, durability: DurabilityClass, python: Path, size: Size
) -> Iterator[tuple[str, Values]]:
    """The row `start`: a start on an empty folder, and some idle seconds."""
    with _folder() as folder, _bench(contender, durability, python, size, folder) as bench:
        seconds = bench.system.start()
        time.sleep(_SETTLE_S)
        idle = _idle(bench.system, size.idle_seconds)
        yield "start", dict(zip((metric.name for metric in LIFE), (seconds, *idle), strict=True))


def kill(
    contender: str, durability: DurabilityClass, python: Path, size: Size
) -> Iterator[tuple[str, Values]]:
    """The row `kill`: all servers are killed under load."""
    with _folder() as folder, _bench(contender, durability, python, size, folder) as bench:
        bench.system.start()
        yield "kill", _loss(bench, lambda: None, lambda: None)


def power_failure(
    contender: str, durability: DurabilityClass, python: Path, size: Size
) -> Iterator[tuple[str, Values]]:
    """The row `power`: all servers are on one disk, which forgets what was not synced."""
    with (
        _folder() as folder,
        VolatileDisk(folder) as disk,
        _bench(contender, durability, python, size, disk.path, log=folder / "clients.log") as bench,
    ):
        # Only messages may be lost, not the files of a system or the topic.
        disk.sync()
        bench.system.start()
        yield "power", _loss(bench, disk.sync, disk.lose_power)


def lost(acknowledged: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> int:
    """How many acknowledged numbers were not found; both are (first, last) pairs."""
    there = {number for first, last in found for number in range(first, last + 1)}
    return sum(number not in there for first, last in acknowledged for number in range(first, last + 1))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-compare-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _bench(
    contender: str,
    durability: DurabilityClass,
    python: Path,
    size: Size,
    folder: Path,
    log: Path | None = None,
) -> Iterator[Bench]:
    bench = Bench(made(contender, durability, folder), python, size, log or folder / "clients.log")
    try:
        yield bench
    finally:
        bench.close()
        bench.system.stop()


def _idle(system: System, seconds: float) -> tuple[float, float]:
    """Resident megabytes and busy cores without clients."""
    pids = system.pids
    before, began = sum(map(thread_seconds, pids)), time.perf_counter()
    time.sleep(seconds)
    cores = (sum(map(thread_seconds, pids)) - before) / (time.perf_counter() - began)
    return sum(map(resident_bytes, pids)) / 1e6, cores


def _loss(bench: Bench, created: Callable[[], None], lose: Callable[[], None]) -> Values:
    """Kill the running servers under load, start them again, and count what is missing."""
    name = f"compare-{uuid.uuid4().hex[:8]}"
    client = bench.client()
    client.call({"do": "create", "target": name})
    # The row is about messages: some systems write the names of new streams to files seconds later.
    time.sleep(_NAMES_S)
    created()
    client.prepare({"do": "log", "target": name, "size": _MESSAGE_BYTES})
    client.go()
    client.wait_for_acknowledgement()
    time.sleep(bench.size.kill_after_s)
    bench.system.kill()
    client.stop_job()
    sent = client.result()
    bench.close()
    lose()
    bench.system.start()
    found = _listed(bench, name)
    return {"acknowledged": sent["messages"], "lost": lost(sent["numbers"], found["numbers"])}


def _listed(bench: Bench, name: str) -> Job:
    """What is there. A server that accepts clients may not have recovered its queues yet."""
    deadline = time.monotonic() + _RECOVERY_S
    while True:
        time.sleep(_SETTLE_S)
        try:
            return bench.client().call({"do": "list", "target": name})
        except JobFailed:
            if time.monotonic() > deadline:
                raise
