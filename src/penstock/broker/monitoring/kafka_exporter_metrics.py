"""The metrics of `/metrics/kafka`, with the names that existing dashboards query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.metrics import ApiStats
from penstock.broker.monitoring.cluster_metrics import broker_states
from penstock.broker.monitoring.partition_metrics import ReplicaCounts, count
from penstock.broker.monitoring.sources import Snapshot, Sources, hosted
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.observability.exposition import Page, escaped, labelled

__all__ = ["collect_kafka"]

_STEP: Final = 8
_NONE: Final = ApiStats("")


def collect_kafka(page: Page, sources: Sources, snapshot: Snapshot) -> Iterator[None]:
    """All but the groups (`group_metrics`)."""
    counts = ReplicaCounts()
    yield from _collect_partitions(page, sources, counts)
    yield from _collect_traffic(page, sources)
    prefix = "kafka_server_replicamanager"
    page.set(f"{prefix}_partitioncount", counts.partitions)
    page.set(f"{prefix}_leadercount", counts.leaders)
    page.set(f"{prefix}_underreplicatedpartitions", counts.under_replicated)
    page.set(f"{prefix}_underminisrpartitioncount", counts.under_min_isr)
    page.set(f"{prefix}_isrshrinks_total", sources.metrics.isr_shrinks)
    page.set(f"{prefix}_isrexpands_total", sources.metrics.isr_expands)
    yield from _collect_offline(page, sources)
    yield from _collect_cluster(page, sources)
    page.set("process_cpu_seconds_total", round(snapshot.cpu_s, 3))
    page.set("process_resident_memory_bytes", snapshot.resident_bytes)
    page.set("process_open_fds", snapshot.open_files)
    page.set("process_max_fds", DESCRIPTORS.limit)
    page.set("process_start_time_seconds", sources.started_s)


def _collect_partitions(page: Page, sources: Sources, counts: ReplicaCounts) -> Iterator[None]:
    nth = 0
    for topic, partitions in hosted(sources.partitions, sources.image):
        name = escaped(topic)
        for partition in partitions:
            count(partition, counts)
            labels = f'{{topic="{name}",partition="{partition.index}"}}'
            page["kafka_log_log_size"].add(labels, partition.log.size)
            if partition.leading:
                _add_leader(page, sources, partition, labels)
            nth += 1
            if nth % _STEP == 0:
                yield


def _add_leader(page: Page, sources: Sources, partition: Partition, labels: str) -> None:
    log = partition.log
    page["kafka_topic_partition_current_offset"].add(labels, log.high_watermark)
    page["kafka_topic_partition_oldest_offset"].add(labels, log.log_start_offset)
    topic = sources.image.topics_by_id.get(partition.topic_id)
    image = None if topic is None else topic.partitions.get(partition.index)
    if image is not None:
        page["kafka_topic_partition_leader"].add(labels, image.leader)
        preferred = int(bool(image.replicas) and image.leader == image.replicas[0])
        page["kafka_topic_partition_leader_is_preferred"].add(labels, preferred)
        page["kafka_topic_partition_replicas"].add(labels, len(image.replicas))
        page["kafka_topic_partition_in_sync_replica"].add(labels, len(image.isr))
        lacking = int(len(image.isr) < len(image.replicas))
        page["kafka_topic_partition_under_replicated_partition"].add(labels, lacking)


def _collect_traffic(page: Page, sources: Sources) -> Iterator[None]:
    prefix, metrics = "kafka_server_brokertopicmetrics", sources.metrics
    records, arrived, left = (page[f"{prefix}_{n}_total"] for n in ("messagesin", "bytesin", "bytesout"))
    total = metrics.traffic.total()
    for labels, stats in [("", total), *((None, each) for each in list(metrics.traffic.topics.values()))]:
        text = labelled(topic=stats.name) if labels is None else labels
        records.add(text, stats.records_in)
        arrived.add(text, stats.bytes_in)
        left.add(text, stats.bytes_out)
        yield
    page.set(f"{prefix}_replicationbytesin_total", metrics.replication_bytes_in)
    page.set(f"{prefix}_replicationbytesout_total", metrics.replication_bytes_out)
    page.set(f"{prefix}_remotefetchrequests_total", metrics.remote.requests)
    page.set(f"{prefix}_remotefetchbytes_total", metrics.remote.bytes_read)
    page.set(f"{prefix}_remotefetcherrors_total", metrics.remote.errors)
    copies = metrics.copies.total()
    page.set(f"{prefix}_remotecopyrequests_total", copies.requests)
    page.set(f"{prefix}_remotecopybytes_total", copies.bytes)
    page.set(f"{prefix}_remotecopyerrors_total", copies.errors)
    page.set(f"{prefix}_remotecopylagbytes", copies.lag_bytes)
    page.set(f"{prefix}_remotecopylagsegments", copies.lag_segments)
    for name, failed in (("Produce", metrics.produce_errors), ("Fetch", metrics.fetch_errors)):
        requests = metrics.apis.get(name, _NONE).latency.count
        page.set(f"{prefix}_total{name.lower()}requests_total", requests)
        page.set(f"{prefix}_failed{name.lower()}requests_total", failed)
    for each in metrics.apis.values():
        page.set("kafka_network_requestmetrics_requests_total", each.latency.count, request=each.name)
    for server in sources.servers:
        is_open = Counter(connection.listener.name for connection in server.connections)
        for listener, number in is_open.items():
            page.set("kafka_server_socketservermetrics_connection_count", number, listener=listener)
    yield


def _collect_offline(page: Page, sources: Sources) -> Iterator[None]:
    """Replicas whose data directory cannot hold them."""
    offline = 0
    for name in list(sources.image.topics):
        slots = sources.partitions.of_topic(name).values()
        offline += sum(slot is ErrorCode.KAFKA_STORAGE_ERROR for slot in slots)
        yield
    for directory in sources.partitions.directories:
        if directory.health.offline is not None:
            offline += sum(1 for _ in sources.partitions.in_directory(directory))
    page.set("kafka_server_replicamanager_offlinereplicacount", offline)


def _collect_cluster(page: Page, sources: Sources) -> Iterator[None]:
    image = sources.image
    states = broker_states(sources)
    page.set("kafka_brokers", states["active"])
    for broker in image.brokers.values():
        host, port = next(iter(broker.endpoints.values()), ("", 0))
        page.set("kafka_broker_info", 1, id=broker.id, address=f"{host}:{port}")
    partitions = 0
    for topic in list(image.topics.values()):
        page["kafka_topic_partitions"].add(labelled(topic=topic.name), len(topic.partitions))
        partitions += len(topic.partitions)
        yield
    is_active = sources.node.controller.is_active
    prefix = "kafka_controller_kafkacontroller"
    page.set(f"{prefix}_activecontrollercount", int(is_active))
    if is_active:
        page.set(f"{prefix}_offlinepartitionscount", len(image.leaderless))
        page.set(f"{prefix}_activebrokercount", states["active"])
        page.set(f"{prefix}_fencedbrokercount", states["fenced"])
        page.set(f"{prefix}_globaltopiccount", len(image.topics))
        page.set(f"{prefix}_globalpartitioncount", partitions)
