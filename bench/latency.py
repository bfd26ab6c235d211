"""From producer to consumer at a fixed rate, and how much of it is the client library's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.load import latency, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values
from lab.cluster import Cluster
from lab.server import Server

SECONDS = 10.0
CORES = Metric("broker cores", "", False)
QUEUE = Metric("in the client's queue, p50", "ms", False)
BEHIND_QUEUE = "p50 without the client's queue"
REQUEST = Metric("Produce round trip, p50", "ms", False)
REQUEST_TAIL = Metric("Produce round trip, p99", "ms", False)


def _end_to_end(rate: int, linger_ms: str) -> Callable[[Contender, float], Values]:
    settings = {"acks": "all", "linger.ms": linger_ms}

    def measure(contender: Contender, scale: float) -> Values:
        return arrived(contender.server, SECONDS * scale, rate, settings)

    return measure


def arrived(
    brokers: Server | Cluster, seconds: float, rate: int, settings: Mapping[str, str], replicas: int = 1
) -> Values:
    with topic(brokers.bootstrap, replicas=replicas) as name:
        before = cpu_seconds(*brokers.pids)
        seen = latency(brokers.bootstrap, name, int(seconds * rate), rate, settings)
        spent = cpu_seconds(*brokers.pids) - before
    return {
        "p50": seen.end_to_end.p50,
        "p99": seen.end_to_end.p99,
        "p99.9": seen.end_to_end.p99_9,
        CORES.name: spent / seen.seconds,
        REQUEST.name: seen.request.p50,
        REQUEST_TAIL.name: seen.request.p99,
        QUEUE.name: seen.queue.p50,
        BEHIND_QUEUE: seen.end_to_end.p50 - seen.queue.p50,
    }


WHERE = (
    "with a linger of 1 ms a message spends 0.74 ms of the median in the client's queue, before the broker "
    "can know of it, and that is the same on both sides; it is shown apart. The rest is the Produce round "
    "trip, the answer to the waiting Fetch, and the client's threads that hand the message on. Tails are the "
    "scheduler's: broker and client have two cores between them."
)
ROWS = (
    Row(
        "latency-10k",
        "end to end at 10,000 messages/s, linger 1 ms",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, times_kafka=0.7),
            Metric("p99.9", "ms", False, times_kafka=0.7),
            QUEUE,
            Metric(BEHIND_QUEUE, "ms", False, times_kafka=0.7),
            REQUEST,
            REQUEST_TAIL,
            CORES,
        ),
        _end_to_end(10_000, "1"),
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
            CORES,
        ),
        _end_to_end(1000, "0"),
        where=WHERE,
    ),
)
