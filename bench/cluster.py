"""Three brokers, every record on all of them, two of which must have it before the answer.

Each row starts a cluster of its own and ends it: an idle one of Apache Kafka's takes a good part of a core,
so that neither side may run beside the other. What a just-in-time compiler and the page cache need to warm up
is sent twice before what counts, to both, and what counts several times while they are warm.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench import latency, throughput
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values
from lab.cluster import REPLICAS, Cluster, Way, direct
from penstock.cli.direct import DirectLine
from penstock.cli.overview import cluster_overview

BROKERS = 3
ROUNDS = 2
WARM_UPS = 2
PASSES = 3
PATIENCE_S = 90.0
POLL_S = 0.1
#: the same for both sides: nothing is lost or written twice, and a client that is refused soon asks again
CLIENT = {
    "acks": "all",
    "enable.idempotence": "true",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "100",
}
RATE = 2000
SECONDS = 6.0
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


def _producing(size: int, messages: int, batch: int) -> Callable[[Contender, float], list[Values]]:
    settings = throughput.PRODUCER | CLIENT | {"batch.num.messages": str(batch)}

    def measure(contender: Contender, scale: float) -> list[Values]:
        def once() -> Values:
            return throughput.produced(cluster, int(messages * scale), size, settings, REPLICAS)

        with running(contender) as cluster:
            return [once() for _ in range(WARM_UPS + PASSES)][WARM_UPS:]

    return measure


def _end_to_end(contender: Contender, scale: float) -> list[Values]:
    settings = CLIENT | {"linger.ms": "1"}

    def once() -> Values:
        return latency.arrived(cluster, SECONDS * scale, RATE, settings, REPLICAS)

    with running(contender) as cluster:
        return [once() for _ in range(WARM_UPS + PASSES)][WARM_UPS:]


def _starting(contender: Contender, scale: float) -> Values:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        cluster = contender.cluster(Path(folder), {}, BROKERS)
        seconds = cluster.start()
        cluster.stop()
    return {"every broker ready": seconds}


def _idle(contender: Contender, scale: float) -> Values:
    """What partitions cost that nobody uses, once their replicas have nothing left to do."""
    with running(contender) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        wanted = [NewTopic(f"idle-{number}", IDLE_PARTITIONS, REPLICAS) for number in range(IDLE_TOPICS)]
        for made in admin.create_topics(wanted, operation_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)
        # A client keeps connections and asks for metadata now and then: it goes before anything is counted.
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
    told = f"three brokers: {what}"
    return Row(name, told, metrics, measure, heavy=True, rounds=rounds, brokers=BROKERS, where=where)


ROWS = (
    _row(
        "cluster-produce-1k",
        "produce 1-KB messages, 4 partitions, 3 replicas, acks=all, idempotent",
        throughput.metrics(1.3, "CPU per million", 0.5),
        _producing(1024, 1_000_000, batch=1000),
    ),
    _row(
        "cluster-produce-100",
        "produce 100-byte messages, 4 partitions, 3 replicas, acks=all, idempotent",
        throughput.metrics(1.0, "CPU per million", 0.7),
        _producing(100, 3_000_000, batch=10_000),
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
            Metric(latency.CORES.name, "", False, times_kafka=0.3),
        ),
        _end_to_end,
        where=(
            "80 % in the interpreter, 12 % in the kernel (perf): at this rate batches have a record or two, "
            "and each wakes three brokers, for its Produce, two fetches of replicas and a consumer's."
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
        "1,000 partitions with 3 replicas each, and nobody who uses them",
        (Metric("cores", "", False, times_kafka=0.3),),
        _idle,
        rounds=1,
    ),
)
