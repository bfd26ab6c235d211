"""What is measured: each workload is one piece of work on one system, and gives values for one or two rows.

The load client is a child process with the library that the system's project recommends for Python. CPU is
user and system time: of all processes of the system, and of the client process.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.compare.child import Job, LoadProcess
from bench.compare.systems import CLIENT_MODULES, System
from bench.process import thread_seconds
from bench.table import Metric, Values

__all__ = ["FULL", "LIFE", "LOSS", "QUICK", "ROWS", "WORKLOADS", "Bench", "RowSpec", "Size", "Workload"]


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a run does."""

    rounds: int
    seconds: float
    """Of one measurement of throughput."""
    most: int
    """Messages of one measurement of throughput, so that memory and disk suffice."""
    latency_seconds: float
    kill_after_s: float
    warm_seconds: float
    """Of each measurement of the discarded round before."""
    warms_all: bool
    """Whether that round has all workloads; else only the first."""
    has_power_failures_of_clusters: bool
    idle_seconds: float


FULL = Size(3, 2.0, 1_000_000, 5.0, 2.0, 2.0, True, True, 3.0)
QUICK = Size(1, 0.6, 200_000, 1.5, 0.7, 1.0, False, False, 1.0)

RATE = 1000
PATIENCE_S = 5.0

PER_SECOND = Metric("messages/s", "", True)
SERVER_CPU = Metric("server CPU per million", "s", False)
CLIENT_CPU = Metric("client CPU per million", "s", False)
FLOW = (PER_SECOND, SERVER_CPU, CLIENT_CPU)
LATENCY = (
    Metric("p50", "ms", False),
    Metric("p99", "ms", False),
    Metric("p99.9", "ms", False),
    Metric("server cores", "", False),
    Metric("not delivered", "messages", False),
)
LIFE = (
    Metric("ready after", "s", False),
    Metric("resident, idle", "MB", False),
    Metric("idle, cores", "", False),
)
LOSS = (Metric("acknowledged", "messages", True), Metric("lost", "messages", False))


@dataclass(frozen=True, slots=True)
class RowSpec:
    """A row of the page; `what` is its text."""

    name: str
    what: str
    metrics: tuple[Metric, ...]


def _flow(name: str, what: str) -> RowSpec:
    return RowSpec(name, what, FLOW)


ROWS: tuple[RowSpec, ...] = (
    _flow("produce-1k", "produce 1 KB, batched"),
    _flow("produce-100", "produce 100 B, batched"),
    _flow("produce-1k-single", "produce 1 KB one by one: each acknowledged before the next"),
    _flow("produce-100-single", "produce 100 B one by one"),
    _flow("consume-1k", "consume 1 KB from the beginning, batched"),
    _flow("consume-100", "consume 100 B from the beginning, batched"),
    _flow("consume-1k-single", "consume 1 KB one by one: each committed or acknowledged before the next"),
    _flow("consume-100-single", "consume 100 B one by one"),
    _flow("queue", "work queue, 1 KB: 100 at a time, each acknowledged"),
    RowSpec("latency", f"end to end at {RATE:,} messages/s of 1 KB", LATENCY),
    RowSpec("start", "start on an empty folder", LIFE),
    RowSpec("kill", "`kill -9` of every server under load", LOSS),
    RowSpec("power", "power failure under load: unsynced writes are dropped", LOSS),
)


@dataclass(slots=True)
class Bench:
    """A running system with its client processes, which stay for all workloads."""

    system: System
    python: Path
    size: Size
    log: Path
    clients: list[LoadProcess] = field(default_factory=list)

    def client(self, number: int = 0) -> LoadProcess:
        if not all(client.is_alive() for client in self.clients):
            self.close()
        while len(self.clients) <= number:
            module = CLIENT_MODULES[self.system.name]
            options = self.system.options
            self.clients.append(LoadProcess(self.python, module, self.system.address, options, self.log))
        return self.clients[number]

    def close(self) -> None:
        """End the client processes; a later workload starts new ones."""
        for client in self.clients:
            client.close()
        self.clients.clear()

    def cpu(self) -> float:
        return sum(map(thread_seconds, self.system.pids))

    @contextmanager
    def target(self, is_queue: bool = False) -> Iterator[str]:
        """A topic, stream or queue for one workload, removed afterwards."""
        name = f"compare-{uuid.uuid4().hex[:8]}"
        options = {**self.system.options, "is_queue": is_queue}
        self.client().call({"do": "create", "target": name, "options": options})
        yield name
        self.client().call({"do": "remove", "target": name})


@dataclass(frozen=True, slots=True)
class Workload:
    """`measure` yields the name of a row and its values. `applies` says which systems have it."""

    name: str
    rows: tuple[str, ...]
    measure: Callable[[Bench], Iterator[tuple[str, Values]]]
    applies: Callable[[Bench], bool] = lambda bench: True


def _values(found: Job, server_cpu: float) -> Values:
    messages = found["messages"]
    if not messages:
        raise RuntimeError("no message was transferred")
    return {
        PER_SECOND.name: messages / found["seconds"],
        SERVER_CPU.name: server_cpu / messages * 1e6,
        CLIENT_CPU.name: found["cpu"] / messages * 1e6,
    }


def _transfer(label: str, bytes_: int, batched: bool) -> Workload:
    ending = label if batched else f"{label}-single"
    rows = (f"produce-{ending}", f"consume-{ending}")

    def measure(bench: Bench) -> Iterator[tuple[str, Values]]:
        size = bench.size
        with bench.target() as name:
            common: Job = {"target": name, "batched": batched, "seconds": size.seconds}
            job = {**common, "do": "produce", "size": bytes_, "most": size.most}
            sent, cpu = bench.client().timed(job, bench.cpu)
            yield rows[0], _values(sent, cpu)
            job = {**common, "do": "consume", "most": sent["messages"]}
            read, cpu = bench.client().timed(job, bench.cpu)
            yield rows[1], _values(read, cpu)

    return Workload(f"transfer-{ending}", rows, measure)


def _queue(bench: Bench) -> Iterator[tuple[str, Values]]:
    size = bench.size
    with bench.target(is_queue=True) as name:
        job: Job = {"do": "produce", "target": name, "batched": True, "size": 1024}
        sent, _ = bench.client().timed({**job, "seconds": size.seconds, "most": size.most // 4}, bench.cpu)
        # A last batch that is not full would have some clients wait for the rest, and a member of a share
        # group takes a batch before the clock starts.
        most = max(100, (sent["messages"] - 1000) // 100 * 100)
        job = {"do": "work", "target": name, "seconds": size.seconds, "most": most}
        read, cpu = bench.client().timed(job, bench.cpu)
        yield "queue", _values(read, cpu)


def _latency(bench: Bench) -> Iterator[tuple[str, Values]]:
    """Two clients: the receiver's clock is the sender's, `CLOCK_MONOTONIC` of this machine."""
    count = int(RATE * bench.size.latency_seconds)
    receiver, sender = bench.client(0), bench.client(1)
    with bench.target() as name:
        receiver.prepare({"do": "receive", "target": name, "count": count, "patience": PATIENCE_S})
        receiver.go()
        sender.prepare({"do": "send", "target": name, "count": count, "rate": RATE, "size": 1024})
        before, began = bench.cpu(), time.perf_counter()
        sender.go()
        sender.result()
        spent, seconds = bench.cpu() - before, time.perf_counter() - began
        found = receiver.result()
    values: Values = {metric.name: found[metric.name] for metric in LATENCY[:3]}
    missing = count - found["messages"]
    yield "latency", {**values, "server cores": spent / seconds, "not delivered": missing}


def _has_queue(bench: Bench) -> bool:
    return bench.system.has_queue


WORKLOADS: tuple[Workload, ...] = (
    _transfer("1k", 1024, batched=True),
    _transfer("100", 100, batched=True),
    _transfer("1k", 1024, batched=False),
    _transfer("100", 100, batched=False),
    Workload("queue", ("queue",), _queue, applies=_has_queue),
    Workload("latency", ("latency",), _latency),
)
