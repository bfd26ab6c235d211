"""Three brokers with replication factor 3, acks=all and min.insync.replicas=2.

Each row starts a cluster of its own and ends it: an idle cluster of Apache Kafka takes a good part of a core,
so the two must not run at the same time. The load is measured several times, on warm brokers: before, the
same load is sent for a minute, and on until two passes in a row have about the same cost. The just-in-time
compilers of three processes need that long on two cores.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench import latency, relay, throughput
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values
from lab.cluster import REPLICAS, Cluster, Way, direct
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.direct import DirectLine

BROKERS = 3
ROUNDS = 2
WARM_S = 60.0
WARM_MOST_S = 90.0
WARM_WITHIN = 0.1
"""Two passes in a row of which one costs no more than this above the other are warm."""
PASSES = 3
PATIENCE_S = 90.0
POLL_S = 0.1
#: the same for both sides: nothing is lost, and a client that is refused retries soon
PLAIN = {
    "acks": "all",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
}
#: nothing is written twice, either
CLIENT = PLAIN | {"enable.idempotence": "true"}
RATE = 2000
SECONDS = 6.0
#: what of the brokers' cores is left when they only pass messages on, as many as this side got
PASSED_ON = "cores of three Python processes that only pass messages on"
IDLE_TOPICS, IDLE_PARTITIONS = 10, 100
IDLE_SETTLE_S = 15.0
IDLE_S = 20.0


@contextmanager
def running(contender: Contender, way: Way = direct) -> Iterator[Cluster]:
    """A cluster that goes with everything it has written."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        cluster = contender.cluster(Path(folder), {}, BROKERS, way)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def controller(cluster: Cluster) -> int:
    """The broker that leads the metadata quorum."""
    with DirectLine(cluster.bootstrap, PATIENCE_S) as line:
        leader: int = cluster_overview(line)["controller"]
    return leader


def wait_for_all_replicas(cluster: Cluster) -> None:
    """Return when no partition has a replica that is behind; the brokers run."""
    cluster.wait_ready()
    deadline = time.monotonic() + PATIENCE_S
    with DirectLine(cluster.bootstrap, PATIENCE_S) as line:
        while behind := cluster_overview(line)["under_replicated"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{cluster.name}: {len(behind)} partitions stay behind, first {behind[0]}")
            time.sleep(POLL_S)


def warm_passes(once: Callable[[], Values], cost: str, scale: float) -> list[Values]:
    """The values of the passes on warm brokers; brokers are warm once the cost of passes is stable."""
    began = time.monotonic()
    before, now = inf, once()[cost]
    while (elapsed := time.monotonic() - began) < WARM_MOST_S * scale:
        if elapsed >= WARM_S * scale and max(before, now) <= min(before, now) * (1 + WARM_WITHIN):
            break
        before, now = now, once()[cost]
    return [once() for _ in range(PASSES)]


def _producing(
    size: int, messages: int, batch: int, client: Mapping[str, str]
) -> Callable[[Contender, float], list[Values]]:
    settings = {**throughput.PRODUCER, **client, "batch.num.messages": str(batch)}

    def measure(contender: Contender, scale: float) -> list[Values]:
        def once() -> Values:
            return throughput.produced(cluster, int(messages * scale), size, settings, REPLICAS)

        with running(contender) as cluster:
            return warm_passes(once, throughput.PER_MILLION, scale)

    return measure


def _end_to_end(contender: Contender, scale: float) -> list[Values]:
    settings = CLIENT | {"linger.ms": "1"}

    def once() -> Values:
        return latency.arrived(cluster, SECONDS * scale, RATE, settings, REPLICAS)

    with running(contender) as cluster:
        passes = warm_passes(once, latency.CORES.name, scale)
    requests = RATE / statistics.median(found[latency.GATHERED.name] for found in passes)
    floor = relay.cores(requests, SECONDS * scale)
    return [found | {PASSED_ON: floor} for found in passes]


def _starting(contender: Contender, scale: float) -> Values:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        cluster = contender.cluster(Path(folder), {}, BROKERS)
        seconds = cluster.start()
        cluster.stop()
    return {"every broker ready": seconds}


def _idle(contender: Contender, scale: float) -> Values:
    """The cost of idle partitions, once their replicas are in sync."""
    with running(contender) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        wanted = [NewTopic(f"idle-{number}", IDLE_PARTITIONS, REPLICAS) for number in range(IDLE_TOPICS)]
        for made in admin.create_topics(wanted, operation_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)
        # The client is closed before the measurement: it keeps connections and refreshes its metadata.
        del admin
        wait_for_all_replicas(cluster)
        time.sleep(IDLE_SETTLE_S * scale)
        before, began = cpu_seconds(*cluster.pids), time.perf_counter()
        time.sleep(IDLE_S * scale)
        spent = cpu_seconds(*cluster.pids) - before
        return {"cores": spent / (time.perf_counter() - began)}


def _row(
    name: str,
    what: str,
    metrics: tuple[Metric, ...],
    measure: Callable[[Contender, float], Values | list[Values]],
    rounds: int = ROUNDS,
    where: str = "",
) -> Row:
    described = f"three brokers: {what}"
    return Row(name, described, metrics, measure, heavy=True, rounds=rounds, brokers=BROKERS, where=where)


ROWS = (
    _row(
        "cluster-produce-1k",
        "produce 1-KB messages, 4 partitions, 3 replicas, acks=all, idempotent",
        throughput.metrics(1.3, throughput.PER_MILLION, 0.5),
        _producing(1024, 1_000_000, 1000, CLIENT),
    ),
    _row(
        "cluster-produce-1k-plain",
        "produce 1-KB messages, 4 partitions, 3 replicas, acks=all, not idempotent",
        throughput.metrics(1.3, throughput.PER_MILLION, 0.5),
        _producing(1024, 1_000_000, 1000, PLAIN),
    ),
    _row(
        "cluster-produce-100",
        "produce 100-byte messages, 4 partitions, 3 replicas, acks=all, idempotent",
        throughput.metrics(1.0, throughput.PER_MILLION, 0.7),
        _producing(100, 3_000_000, 10_000, CLIENT),
    ),
    _row(
        "cluster-latency",
        "end to end at 2,000 messages/s, linger 1 ms, 3 replicas, acks=all, idempotent",
        (
            Metric("p50", "ms", False, times_kafka=0.7),
            Metric("p99", "ms", False, limit=20),
            Metric("p99.9", "ms", False),
            latency.QUEUE,
            Metric(latency.BEHIND_QUEUE, "ms", False),
            latency.REQUEST,
            latency.REQUEST_TAIL,
            latency.GATHERED,
            Metric(latency.CORES.name, "", False, times_kafka=0.3),
            Metric(PASSED_ON, "", False),
        ),
        _end_to_end,
        where=(
            "most of it in the interpreter, then in the kernel and in the event loop (perf). While a broker "
            "has not answered, its client gathers messages, so a slow broker gets fewer and larger "
            "requests (messages per Produce, above) and does less work. Penstock answers within the "
            "linger, so a batch has one or two messages, and each batch wakes three brokers: for the "
            "Produce, two fetches of replicas and one of a consumer. The steps run from cold caches, so "
            "fewer steps save less time than their share (ADR 8). Delayed answers and a compiled hot path "
            "saved little, and were not kept (docs/internals/performance.md). "
            "`bench/relay.py` measures Python processes that only pass messages on."
        ),
    ),
    _row(
        "cluster-start",
        "start on empty folders",
        (Metric("every broker ready", "s", False, limit=1.5),),
        _starting,
        rounds=3,
    ),
    _row(
        "cluster-idle",
        "1,000 partitions with 3 replicas each, without clients",
        (Metric("cores", "", False, times_kafka=0.3),),
        _idle,
        rounds=1,
    ),
)
