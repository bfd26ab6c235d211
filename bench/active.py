"""Ten thousand active producers and as many active consumers on one broker (`bench/active_clients.py`)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any, Final

from bench.lifecycle import allow_open_files
from bench.load import topic
from bench.process import cpu_seconds, resident_bytes
from bench.table import Contender, Metric, Row, Values, fresh
from lab.home import REPOSITORY
from lab.server import Server

CLIENTS: Final = 10_000
SECONDS: Final = 20.0
#: producers, and consumers, of a partition
PER_PARTITION: Final = 10
#: files of a broker that are neither connections nor this row's partitions
OTHER_FILES: Final = 500


def clients_within(open_files: int) -> int:
    """Producers, and consumers, that a broker with so many file descriptors can have; a multiple of 100."""
    possible = int((open_files - OTHER_FILES) / (2 + 1 / PER_PARTITION))
    return min(CLIENTS, possible // 100 * 100)


def _active(contender: Contender, scale: float) -> Values:
    allow_open_files(2 * CLIENTS + CLIENTS // PER_PARTITION + OTHER_FILES)
    count = clients_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if count < CLIENTS:
        print(f"    {count} producers and consumers: the limit on open files allows no more", file=sys.stderr)
    partitions = count // PER_PARTITION
    with fresh(contender, {}) as server, topic(server.bootstrap, partitions) as name:
        return _measure(server, name, partitions, count, SECONDS * scale)


def _measure(server: Server, name: str, partitions: int, count: int, seconds: float) -> Values:
    command = [sys.executable, "-m", "bench.active_clients", str(server.port), name]
    command += [str(partitions), str(count), f"{seconds:g}"]
    before = resident_bytes(server.pid)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            _expect(process.stdout.readline(), "connected")
            connected = resident_bytes(server.pid)
            process.stdin.write("go\n")
            process.stdin.flush()
            _expect(process.stdout.readline(), "sending")
            spent, began = cpu_seconds(server.pid), time.perf_counter()
            seen: dict[str, Any] = json.loads(process.stdout.readline())
            spent = cpu_seconds(server.pid) - spent
            passed = time.perf_counter() - began
            loaded = resident_bytes(server.pid)
        finally:
            process.kill()
    if seen["failed"]:
        raise RuntimeError(f"{server.name} closed {seen['failed']} connections")
    clients = 2 * count
    return {
        "producers, and consumers": float(count),
        "records a second": seen["produced"] / seen["seconds"],
        "Produce, p50": seen["produce_ms"]["p50"],
        "Produce, p99": seen["produce_ms"]["p99"],
        "from Produce to the waiting Fetch, p50": seen["deliver_ms"]["p50"],
        "from Produce to the waiting Fetch, p99": seen["deliver_ms"]["p99"],
        "broker cores": spent / passed,
        "CPU per client": 1e6 * spent / passed / clients,
        "memory per connection": (connected - before) / clients / 1024,
        "memory per active client": (loaded - before) / clients / 1024,
        "cores of the load": seen["cpu"] / seen["seconds"],
        "sends that were late": 100 * seen["late"] / (seen["late"] + seen["produced"]),
    }


def _expect(line: str, word: str) -> None:
    if line.strip() != word:
        raise RuntimeError(f"the clients said {line.strip()!r} instead of {word!r}")


ROWS = (
    Row(
        "active-clients",
        "producers that send a record a second, and as many consumers that wait in a Fetch: 10,000 each, or "
        "what the limit on open files allows",
        (
            Metric("producers, and consumers", "", True),
            Metric("records a second", "", True),
            Metric("Produce, p50", "ms", False),
            Metric("Produce, p99", "ms", False),
            Metric("from Produce to the waiting Fetch, p50", "ms", False),
            Metric("from Produce to the waiting Fetch, p99", "ms", False),
            Metric("broker cores", "", False),
            Metric("CPU per client", "µs a second", False),
            Metric("memory per connection", "KiB", False),
            Metric("memory per active client", "KiB", False),
            Metric("cores of the load", "", False),
            Metric("sends that were late", "%", False),
        ),
        _active,
        heavy=True,
        where="the load is one process on the cores that it shares with the broker.",
    ),
)
