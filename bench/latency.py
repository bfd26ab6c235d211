"""From producer to consumer at a fixed rate, and how much of it is the client library's."""

from __future__ import annotations

from collections.abc import Callable

from bench.load import latency, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values

SECONDS = 10.0
CORES = Metric("broker cores", "", False)
OUTSIDE = Metric("outside the Produce round trip, p50", "ms", False)
REQUEST = Metric("Produce round trip, p50", "ms", False)
REQUEST_TAIL = Metric("Produce round trip, p99", "ms", False)


def _end_to_end(rate: int, linger_ms: str) -> Callable[[Contender, float], Values]:
    settings = {"acks": "all", "linger.ms": linger_ms}

    def measure(contender: Contender, scale: float) -> Values:
        server = contender.server
        with topic(server.bootstrap) as name:
            before = cpu_seconds(server.pid)
            seen = latency(server.bootstrap, name, int(SECONDS * scale * rate), rate, settings)
            spent = cpu_seconds(server.pid) - before
        return {
            "p50": seen.end_to_end.p50,
            "p99": seen.end_to_end.p99,
            "p99.9": seen.end_to_end.p99_9,
            CORES.name: spent / seen.seconds,
            REQUEST.name: seen.request.p50,
            REQUEST_TAIL.name: seen.request.p99,
            OUTSIDE.name: seen.end_to_end.p50 - seen.request.p50,
        }

    return measure


WHERE = (
    "partly in the Produce round trip, which is shown below the percentiles; what is outside of it is mostly "
    "the client library, the same on both sides: its queue and linger on the way in, the hand-over to the "
    "consumer on the way out. Tails are the scheduler's: broker and client have two cores between them."
)
ROWS = (
    Row(
        "latency-10k",
        "end to end at 10,000 messages/s, linger 1 ms",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, times_kafka=0.7),
            Metric("p99.9", "ms", False, times_kafka=0.7),
            CORES,
            REQUEST,
            REQUEST_TAIL,
            OUTSIDE,
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
            CORES,
            REQUEST,
            REQUEST_TAIL,
            OUTSIDE,
        ),
        _end_to_end(1000, "0"),
        where=WHERE,
    ),
)
