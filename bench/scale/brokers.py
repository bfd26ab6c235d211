"""Many partitions on three running brokers: their creation, their memory, and the end and start of a broker.

Partitions have replication factor 3, so each broker has a replica of all of them and leads a third. Seconds
are wall time unless they say CPU, which is the sum of the brokers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.lifecycle import allow_open_files
from bench.load import compiled
from bench.process import cpu_seconds, resident_bytes, thread_seconds
from bench.steady import longest_gap, steady
from lab.cluster import Cluster, kafka_cluster, penstock_cluster
from lab.raw_client import RawClient
from lab.server import Server
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)

__all__ = ["BROKERS", "CLUSTERS", "measure"]

BROKERS: Final = 3
PER_TOPIC: Final = 100
#: topics that one request creates: a thousand partitions
PER_REQUEST: Final = 10
_OPEN_FILES: Final = 1_000_000
_PATIENCE_S: Final = 300.0
_IDLE_S: Final = 15.0
#: a cluster that uses less has nothing left to do
_CALM_CORES: Final = 0.25
_CALM_S: Final = 2.0
_CALLS: Final = 300
_METADATA_VERSION: Final = 9
_CREATE_VERSION: Final = 5
_ELECT_VERSION: Final = 2
_POLL_S: Final = 0.02
#: the topic of the producer and of Metadata requests: one partition, which the broker leads that is ended
_PROBE: Final = "probe"
_VICTIM: Final = 3
_LED_BY_VICTIM: Final = CreatableReplicaAssignment(partition_index=0, broker_ids=[_VICTIM, 1, 2])
_PRODUCER: Final = {"acks": "all", "linger.ms": "0"}
Report = Callable[[str, float], None]

CLUSTERS: Final[Mapping[str, Callable[[Path, Mapping[str, str]], Cluster]]] = {
    "penstock": penstock_cluster,
    "kafka": kafka_cluster,
}


def measure(kind: str, partitions: int, report: Report) -> None:
    """Measure a cluster of a kind, and report each value as it is known."""
    allow_open_files(_OPEN_FILES)
    compiled()  # the producer
    with tempfile.TemporaryDirectory(prefix="penstock-scale-") as folder:
        cluster = CLUSTERS[kind](Path(folder), {"auto.create.topics.enable": "false"})
        cluster.start()
        try:
            _measure(cluster, partitions, report)
        finally:
            cluster.stop()


def _measure(cluster: Cluster, partitions: int, report: Report) -> None:
    names = [f"many-{number}" for number in range(partitions // PER_TOPIC)]
    replicas = partitions * BROKERS
    _create(
        cluster,
        [CreatableTopic(name=_PROBE, num_partitions=-1, replication_factor=-1, assignments=[_LED_BY_VICTIM])],
    )
    _wait_until_calm(cluster)
    empty = [resident_bytes(pid) for pid in cluster.pids]
    report("Metadata for one topic without the others, µs of CPU", _metadata_cost(cluster))
    with _spent(cluster.pids) as spent:
        began = time.perf_counter()
        for start in range(0, len(names), PER_REQUEST):
            some = names[start : start + PER_REQUEST]
            _create(cluster, [_many(name) for name in some])
        report("creation, s", time.perf_counter() - began)
        _wait_until_calm(cluster)
    report("creation, µs of CPU per replica", 1e6 * spent[0] / replicas)
    used = [resident_bytes(pid) - before for pid, before in zip(cluster.pids, empty, strict=True)]
    report("memory per replica, KB", sum(used) / replicas / 1e3)
    with _spent(cluster.pids) as spent:
        time.sleep(_IDLE_S)
    report("idle, cores", spent[0] / _IDLE_S)
    report("Metadata for one topic, µs of CPU", _metadata_cost(cluster))
    for what, end in (("controlled stop", Server.stop), ("kill", Server.kill)):
        _end_broker(cluster, names, what, end, report)


def _end_broker(
    cluster: Cluster, names: list[str], what: str, end: Callable[[Server], None], report: Report
) -> None:
    """End a broker while a producer writes to a partition that it leads, and start it again."""
    _elect_preferred(cluster)
    victim, others = cluster.brokers[_VICTIM - 1], [cluster.brokers[0].pid, cluster.brokers[1].pid]
    _wait_until(cluster, [_PROBE], lambda partition: partition.leader_id == _VICTIM)
    with steady(cluster.brokers[0].bootstrap, _PROBE, _PRODUCER) as producer, _spent(others) as spent:
        producer.wait_until_flowing(time.monotonic(), _PATIENCE_S)
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(_timed, partial(end, victim))
            _wait_until(cluster, names, lambda partition: partition.leader_id not in (-1, _VICTIM))
            report(f"{what}, s until every partition has another leader", time.monotonic() - began)
            report(f"{what}, s until the process has ended", ending.result())
        producer.wait_until_flowing(time.monotonic(), _PATIENCE_S)
        gap = longest_gap(producer.acknowledged, began, producer.acknowledged[-1])
        report(f"{what}, s of the longest pause of a producer", gap)
        producer.stop(_PATIENCE_S)
    report(f"{what}, s of CPU of the others", spent[0])
    _start_again(cluster, victim, names, what, report)


def _start_again(cluster: Cluster, victim: Server, names: list[str], what: str, report: Report) -> None:
    partitions, began = len(names) * PER_TOPIC, time.monotonic()
    report(f"start after {what}, s to the first answer", victim.start())
    report(f"start after {what}, µs of CPU per replica", 1e6 * cpu_seconds(victim.pid) / partitions)
    _wait_until(cluster, names, lambda partition: len(partition.isr_nodes) == BROKERS)
    report(f"start after {what}, s until all replicas are in sync", time.monotonic() - began)
    spent = 1e6 * cpu_seconds(victim.pid) / partitions
    report(f"start after {what}, µs of CPU per replica until then", spent)
    _wait_until_calm(cluster)


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@contextmanager
def _spent(pids: Sequence[int]) -> Iterator[list[float]]:
    """The CPU seconds of processes in the block, known at its end."""
    spent = [0.0]
    before = cpu_seconds(*pids)
    yield spent
    spent[0] = cpu_seconds(*pids) - before


def _many(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=PER_TOPIC, replication_factor=BROKERS)


def _create(cluster: Cluster, topics: list[CreatableTopic]) -> None:
    """Create topics with one request, and wait until the broker that was asked knows them."""
    with RawClient(cluster.brokers[0].bootstrap, timeout_s=_PATIENCE_S) as client:
        request = CreateTopicsRequest(topics=topics, timeout_ms=int(1e3 * _PATIENCE_S))
        for made in client.call(CREATE_TOPICS, _CREATE_VERSION, request).topics:
            if made.error_code:
                raise RuntimeError(f"topic {made.name}: error {made.error_code}, {made.error_message}")


def _elect_preferred(cluster: Cluster) -> None:
    """Give each broker its third of the leaders again."""
    with RawClient(cluster.brokers[0].bootstrap, timeout_s=_PATIENCE_S) as client:
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=int(1e3 * _PATIENCE_S))
        client.call(ELECT_LEADERS, _ELECT_VERSION, request)


def _described(client: RawClient, names: Sequence[str]) -> Iterator[MetadataResponsePartition]:
    """The partitions of topics; a topic that the broker does not know has one without a leader."""
    for start in range(0, len(names), PER_REQUEST):
        some = [MetadataRequestTopic(name=name) for name in names[start : start + PER_REQUEST]]
        request = MetadataRequest(topics=some, allow_auto_topic_creation=False)
        for topic in client.call(METADATA, _METADATA_VERSION, request).topics:
            yield from topic.partitions or [MetadataResponsePartition(leader_id=-1)]


def _wait_until(
    cluster: Cluster, names: Sequence[str], holds: Callable[[MetadataResponsePartition], bool]
) -> None:
    """Return when a condition holds for all partitions; topics for which it holds are not asked for again."""
    deadline = time.monotonic() + _PATIENCE_S
    with RawClient(cluster.brokers[0].bootstrap) as client:
        for start in range(0, len(names), PER_REQUEST):
            some = names[start : start + PER_REQUEST]
            while not all(map(holds, _described(client, some))):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{cluster.name}: partitions of {some} stay as they are")
                time.sleep(_POLL_S)


def _wait_until_calm(cluster: Cluster) -> None:
    """Return when the cluster has nothing left to do; its brokers run."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with _spent(cluster.pids) as spent:
            time.sleep(_CALM_S)
        if spent[0] / _CALM_S < _CALM_CORES:
            return


def _metadata_cost(cluster: Cluster) -> float:
    """The broker's CPU for one Metadata request."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=_PROBE)], allow_auto_topic_creation=False)
    broker = cluster.brokers[0]
    with RawClient(broker.bootstrap) as client:
        client.call(METADATA, _METADATA_VERSION, request)
        before = thread_seconds(broker.pid)
        for _ in range(_CALLS):
            client.call(METADATA, _METADATA_VERSION, request)
        return 1e6 * (thread_seconds(broker.pid) - before) / _CALLS
