"""The metrics with the names of the original design, `kafka_analog_*`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.broker.base.metrics import ApiStats, Histogram
from penstock.broker.monitoring.partition_metrics import ReplicaCounts
from penstock.broker.monitoring.request_metrics import error_name
from penstock.broker.monitoring.sources import Snapshot, Sources
from penstock.observability.exposition import BOUNDS_S, Page

__all__ = ["ConsumedEstimate", "collect_analog"]

#: 1 ms, doubled, 15 of them
_BOUNDS_S: Final = BOUNDS_S[6:21]
_NONE: Final = ApiStats("")


class ConsumedEstimate:
    """Records that clients have read: brokers do not count them, so the size of those written is the measure.

    Invariant: the estimate never falls, although the mean size changes.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._records = 0.0

    def update(self, records_in: int, bytes_in: int, bytes_out: int) -> int:
        if bytes_in:
            self._records += (bytes_out - self._bytes) * records_in / bytes_in
            self._bytes = bytes_out
        return int(self._records)


def collect_analog(
    page: Page,
    sources: Sources,
    snapshot: Snapshot,
    counts: ReplicaCounts,
    consumed: ConsumedEstimate,
    is_healthy: bool,
) -> Iterator[None]:
    metrics = sources.metrics
    total = metrics.traffic.total()
    yield
    records = consumed.update(total.records_in, total.bytes_in, total.bytes_out)
    page.set("kafka_analog_messages_produced_total", total.records_in)
    page.set("kafka_analog_messages_consumed_total", records)
    page.set("kafka_analog_bytes_produced_total", total.bytes_in)
    page.set("kafka_analog_bytes_consumed_total", total.bytes_out)
    produce, fetch = _api(metrics.apis, "Produce"), _api(metrics.apis, "Fetch")
    replication = _api(metrics.internal_apis, "Fetch")
    for name, stats in (("produce", produce), ("consume", fetch), ("replication", replication)):
        latency = stats.latency
        family = page[f"kafka_analog_{name}_latency_seconds"]
        family.add_histogram("", latency.buckets, latency.total_ns, _BOUNDS_S)
    page.set("kafka_analog_produce_latency_p99_seconds", p99(produce.latency))
    page.set("kafka_analog_fetch_latency_p99_seconds", p99(fetch.latency))
    page.set("kafka_analog_active_connections", sum(len(server.connections) for server in sources.servers))
    page.set("kafka_analog_partitions", counts.partitions)
    page.set("kafka_analog_leaders", counts.leaders)
    page.set("kafka_analog_replicas", counts.partitions - counts.leaders)
    page.set("kafka_analog_under_replicated_partitions", counts.under_replicated)
    for broker in sources.image.brokers.values():
        healthy = is_healthy if broker.id == sources.node_id else broker.active
        page.set("kafka_analog_broker_health", int(healthy), broker_id=broker.id)
    for name, stats in (("produce", produce), ("consume", fetch)):
        for code, count in stats.errors.items():
            page.set(f"kafka_analog_{name}_errors_total", count, type=error_name(code))
    page.set("kafka_analog_replication_errors_total", metrics.replication_errors, type="not_applied")
    page.set("kafka_analog_cpu_seconds_total", round(snapshot.cpu_s, 3))
    page.set("kafka_analog_memory_usage_bytes", snapshot.resident_bytes)
    page.set("kafka_analog_disk_usage_bytes", counts.bytes)
    page.set("kafka_analog_network_io_bytes_total", _network_bytes(sources))
    yield


def _api(apis: Mapping[str, ApiStats], name: str) -> ApiStats:
    return apis.get(name, _NONE)


def p99(latency: Histogram) -> float:
    """The upper bound of the bucket that has the 99th percentile; 0 without requests."""
    wanted, below = latency.count * 0.99, 0
    for power, count in enumerate(latency.buckets):
        below += count
        if count and below >= wanted:
            return float(BOUNDS_S[min(power, len(BOUNDS_S) - 1)])
    return 0.0


def _network_bytes(sources: Sources) -> int:
    total: Counter[str] = Counter()
    for server in sources.servers:
        total.update(server.counts.bytes_in)
        total.update(server.counts.bytes_out)
        for connection in server.connections:
            total["open"] += connection.received + connection.sent
    return total.total()
