"""From producer to consumer at a fixed rate, and how much of it is the client library's.

How much that is, is measured twice: by the library's own statistics, and end to end against a broker that
takes next to no time (`echo.c`), which no other can be faster than.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.load import Latency, echo, latency, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values
from lab.cluster import Cluster
from lab.server import Server

SECONDS = 10.0
FLOOR_SECONDS = 5.0
CORES = Metric("broker cores", "", False)
QUEUE = Metric("in the client's queue, p50", "ms", False)
BEHIND_QUEUE = "p50 without the client's queue"
QUEUE_TAIL = Metric("in the client's queue, p99", "ms", False)
GATHERED = Metric("messages per Produce", "", True)
REQUEST = Metric("Produce round trip, p50", "ms", False)
REQUEST_TAIL = Metric("Produce round trip, p99", "ms", False)


def _at_10k(contender: Contender, scale: float) -> Values:
    settings = {"acks": "all", "linger.ms": "1"}
    found = arrived(contender.server, SECONDS * scale, 10_000, settings)
    return found | _floor(FLOOR_SECONDS * scale, 10_000, settings)


def _at_1k(contender: Contender, scale: float) -> Values:
    return arrived(contender.server, SECONDS * scale, 1000, {"acks": "all", "linger.ms": "0"})


def arrived(
    brokers: Server | Cluster, seconds: float, rate: int, settings: Mapping[str, str], replicas: int = 1
) -> Values:
    with topic(brokers.bootstrap, replicas=replicas) as name:
        before = cpu_seconds(*brokers.pids)
        seen = latency(brokers.bootstrap, name, int(seconds * rate), rate, settings)
        spent = cpu_seconds(*brokers.pids) - before
    return _end_to_end(seen) | {
        CORES.name: spent / seen.seconds,
        REQUEST.name: seen.request.p50,
        REQUEST_TAIL.name: seen.request.p99,
        GATHERED.name: seen.messages_per_request,
        QUEUE.name: seen.queue.p50,
        QUEUE_TAIL.name: seen.queue.p99,
    }


def _end_to_end(seen: Latency) -> Values:
    return {
        "p50": seen.end_to_end.p50,
        "p99": seen.end_to_end.p99,
        "p99.9": seen.end_to_end.p99_9,
        BEHIND_QUEUE: seen.end_to_end.p50 - seen.queue.p50,
    }


def floor_of(metric: str) -> str:
    """The metric that says the same of a broker that takes next to no time."""
    return f"a broker that only echoes: {metric}"


def _floor(seconds: float, rate: int, settings: Mapping[str, str]) -> Values:
    """The latency of the same client with a broker that only echoes, in the same minute."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-echo-") as folder:
        server = echo(Path(folder))
        server.start()
        try:
            seen = latency(server.bootstrap, "echo", int(seconds * rate), rate, settings)
        finally:
            server.stop()
    return {floor_of(metric): value for metric, value in _end_to_end(seen).items()}


WHERE = (
    "with a linger of 1 ms a message waits in the client's queue before any broker can know of it, on both "
    "sides as long. `bench/echo.c`, a broker in C that keeps everything in memory and checks nothing, shows "
    "the latency of a broker that takes no time: the section on the client library says which targets are "
    "below that. Our share is the append, the answer to the waiting Fetch, and a share of the five "
    "hand-overs between threads on two cores."
)
TARGETS = ("p50", "p99", "p99.9", BEHIND_QUEUE)
ROWS = (
    Row(
        "latency-10k",
        "end to end at 10,000 messages/s, linger 1 ms",
        (
            *(Metric(name, "ms", False, times_kafka=0.7) for name in TARGETS[:3]),
            QUEUE,
            QUEUE_TAIL,
            Metric(BEHIND_QUEUE, "ms", False, times_kafka=0.7),
            *(Metric(floor_of(name), "ms", False) for name in TARGETS),
            REQUEST,
            REQUEST_TAIL,
            GATHERED,
            CORES,
        ),
        _at_10k,
        where=WHERE,
    ),
    Row(
        "latency-1k",
        "end to end at 1,000 messages/s, linger 0",
        (
            Metric("p50", "ms", False, limit=0.8),
            Metric("p99", "ms", False, limit=2),
            Metric("p99.9", "ms", False),
            QUEUE,
            Metric(BEHIND_QUEUE, "ms", False),
            REQUEST,
            REQUEST_TAIL,
            GATHERED,
            CORES,
        ),
        _at_1k,
        where="in five hand-overs between threads that share two cores, most of them the client's.",
    ),
)
