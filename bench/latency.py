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
QUEUE_TAIL = Metric("in the client's queue, p99", "ms", False)
GATHERED = Metric("messages per Produce", "", True)
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
        GATHERED.name: seen.messages_per_request,
        QUEUE.name: seen.queue.p50,
        QUEUE_TAIL.name: seen.queue.p99,
        BEHIND_QUEUE: seen.end_to_end.p50 - seen.queue.p50,
    }


WHERE = (
    "with a linger of 1 ms a message waits in the client's queue before any broker can know of it, on both "
    "sides as long: at 10,000 a second that alone is 0.7 times Kafka's median, so that a broker that took no "
    "time at all would miss its ask, and nearly all of the 99th percentile. The rest is the append, the "
    "answer to the waiting Fetch, and five hand-overs between threads that share two cores."
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
            QUEUE_TAIL,
            Metric(BEHIND_QUEUE, "ms", False, times_kafka=0.7),
            REQUEST,
            REQUEST_TAIL,
            GATHERED,
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
            GATHERED,
            CORES,
        ),
        _end_to_end(1000, "0"),
        where=WHERE,
    ),
)
