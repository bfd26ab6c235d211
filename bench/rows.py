"""The rows of the table: what is done to a broker, and what is read off it.

A row yields one value per metric and round. Rows know nothing of who else is measured: the runner alternates
contenders, so each row leaves the broker as it found it.
"""

from __future__ import annotations

import resource
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench.load import consume, produce, topic
from bench.process import cpu_seconds, resident_bytes
from bench.requests import pipelined
from lab.server import API_VERSIONS_V0, HOST, Server, ask

Values: TypeAlias = dict[str, float]
Starter: TypeAlias = Callable[[Path, Mapping[str, str]], Server]

SETTLE_S = 0.5


@dataclass(frozen=True, slots=True)
class Contender:
    """A broker that runs through all rounds, and the way to start another like it."""

    name: str
    server: Server
    starter: Starter


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. The ask is relative to Kafka's best (`times_kafka`) or absolute (`limit`)."""

    name: str
    unit: str
    higher_is_better: bool
    times_kafka: float | None = None
    limit: float | None = None

    @property
    def label(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def best(self, values: list[float]) -> float:
        return max(values) if self.higher_is_better else min(values)

    def goal(self, kafka_best: float | None) -> float | None:
        """The value to reach, as far as it is known."""
        if self.limit is not None:
            return self.limit
        if self.times_kafka is None or kafka_best is None:
            return None
        return self.times_kafka * kafka_best

    def met(self, value: float, goal: float) -> bool:
        return value >= goal if self.higher_is_better else value <= goal


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    what: str
    metrics: tuple[Metric, ...]
    measure: Callable[[Contender, float], Values]
    """`measure(contender, scale)`: a scale of 1 is the full amount of work."""


def _producing(size: int, messages: int, batch: int) -> Callable[[Contender, float], Values]:
    settings = {
        "acks": "all",
        "linger.ms": "5",
        "batch.num.messages": str(batch),
        "queue.buffering.max.messages": "500000",
        "queue.buffering.max.kbytes": "262144",
    }

    def measure(contender: Contender, scale: float) -> Values:
        server, count = contender.server, int(messages * scale)
        with topic(server.bootstrap) as name:
            before = cpu_seconds(server.pid)
            flow = produce(server.bootstrap, name, count, size, settings)
            spent = cpu_seconds(server.pid) - before
        return {"messages/s": flow.messages_per_second, "CPU per million": spent / count * 1e6}

    return measure


def _consuming(contender: Contender, scale: float) -> Values:
    server, count = contender.server, int(1_000_000 * scale)
    settings = {"fetch.message.max.bytes": "10485760", "queued.min.messages": "1000000"}
    with topic(server.bootstrap) as name:
        produce(server.bootstrap, name, count, 1024, {"linger.ms": "5", "batch.num.messages": "1000"})
        before = cpu_seconds(server.pid)
        flow = consume(server.bootstrap, name, count, settings)
        spent = cpu_seconds(server.pid) - before
    return {"messages/s": flow.messages_per_second, "CPU per GB": spent / (flow.bytes / 1e9)}


def _requests(contender: Contender, scale: float) -> Values:
    server = contender.server
    with topic(server.bootstrap) as name:
        time.sleep(SETTLE_S)
        before = cpu_seconds(server.pid)
        flow = pipelined((HOST, server.port), name, int(100_000 * scale))
        spent = cpu_seconds(server.pid) - before
    return {"requests/s": flow.messages_per_second, "CPU per request": spent / flow.messages * 1e6}


def _starting(contender: Contender, scale: float) -> Values:
    """A second broker on an empty folder: its start, and what it holds when nobody talks to it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = contender.starter(Path(folder), {})
        seconds = server.start()
        try:
            time.sleep(SETTLE_S)
            idle = resident_bytes(server.pid)
        finally:
            server.stop()
    return {"first Metadata answer": seconds, "resident, idle": idle / 1e6}


def _connections(contender: Contender, scale: float) -> Values:
    """Memory per connection that has asked once and then stays silent."""
    count = int(10_000 * scale)
    _allow_open_files(count + 1000)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, ExitStack() as stack:
        server = contender.starter(Path(folder), {})
        server.start()
        stack.callback(server.stop)
        time.sleep(SETTLE_S)
        before = resident_bytes(server.pid)
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((HOST, server.port), 20))
            connection.sendall(len(API_VERSIONS_V0).to_bytes(4, "big") + API_VERSIONS_V0)
            connection.recv(65536)
        after = resident_bytes(server.pid)
        ask((HOST, server.port), API_VERSIONS_V0, 20)
    return {"memory per connection": (after - before) / count / 1e3}


def _allow_open_files(count: int) -> None:
    """Raise this process's limit, which the broker started from it inherits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


ROWS = (
    Row(
        "produce-1k",
        "produce 1-KB messages, 4 partitions, acks=all",
        (
            Metric("messages/s", "", True, times_kafka=1.5),
            Metric("CPU per million", "s", False, times_kafka=0.5),
        ),
        _producing(1024, 1_000_000, batch=1000),
    ),
    Row(
        "produce-100",
        "produce 100-byte messages, 4 partitions, acks=all",
        (
            Metric("messages/s", "", True, times_kafka=1.1),
            Metric("CPU per million", "s", False, times_kafka=0.6),
        ),
        _producing(100, 3_000_000, batch=10_000),
    ),
    Row(
        "consume-1k",
        "consume 1-KB messages from the beginning",
        (
            Metric("messages/s", "", True),
            Metric("CPU per GB", "s", False, times_kafka=1.1),
        ),
        _consuming,
    ),
    Row(
        "requests",
        "one-record Produce requests, acks=1, 50 deep on 4 raw sockets",
        (
            Metric("requests/s", "", True, times_kafka=1.5),
            Metric("CPU per request", "µs", False, times_kafka=0.5),
        ),
        _requests,
    ),
    Row(
        "start",
        "start on an empty folder",
        (
            Metric("first Metadata answer", "s", False, limit=0.3),
            Metric("resident, idle", "MB", False, limit=50),
        ),
        _starting,
    ),
    Row(
        "connections",
        "10,000 connections, each idle after one request",
        (Metric("memory per connection", "KB", False, limit=20),),
        _connections,
    ),
)
