"""Metrics of topics, partitions and replication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.broker.monitoring.sources import Sources, hosted
from penstock.broker.replica.partition import Partition
from penstock.observability.exposition import Page, escaped, labelled

__all__ = ["ReplicaCounts", "collect_partitions"]

#: partitions that one step renders
_STEP: Final = 8


@dataclass(slots=True)
class ReplicaCounts:
    """Replicas of this broker by state, counted along the way."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    bytes: int = 0


def count(partition: Partition, counts: ReplicaCounts) -> None:
    counts.partitions += 1
    counts.bytes += partition.log.size
    if partition.leading:
        counts.leaders += 1
        if partition.leadership is not None:
            state = partition.leadership.state
            counts.under_replicated += len(state.isr) <= len(state.followers)
            counts.under_min_isr += not state.enough_replicas()


def collect_partitions(page: Page, sources: Sources, counts: ReplicaCounts) -> Iterator[None]:
    """Topics, partitions and replication; fills `counts`."""
    now_ms = int(sources.clock.monotonic() * 1000)
    sizes = page["penstock_topic_size_bytes"]
    nth = 0
    for topic, partitions in hosted(sources.partitions, sources.image):
        name, size = escaped(topic), 0
        for partition in partitions:
            count(partition, counts)
            size += partition.log.size
            if partition.leading:
                _add_leader(page, partition, name, now_ms)
            nth += 1
            if nth % _STEP == 0:
                yield
        sizes.add(f'{{topic="{name}"}}', size)
    yield from _collect_traffic(page, sources)
    page.set("penstock_partitions", counts.partitions)
    page.set("penstock_leaders", counts.leaders)
    page.set("penstock_under_replicated_partitions", counts.under_replicated)
    page.set("penstock_under_min_isr_partitions", counts.under_min_isr)
    page.set("penstock_offline_partitions", len(sources.image.leaderless))
    metrics = sources.metrics
    page.set("penstock_isr_shrinks_total", metrics.isr_shrinks)
    page.set("penstock_isr_expands_total", metrics.isr_expands)
    page.set("penstock_replication_bytes_in_total", metrics.replication_bytes_in)
    page.set("penstock_replication_bytes_out_total", metrics.replication_bytes_out)
    page.set("penstock_replication_errors_total", metrics.replication_errors)


def _add_leader(page: Page, partition: Partition, topic: str, now_ms: int) -> None:
    log = partition.log
    inner = f'topic="{topic}",partition="{partition.index}"'
    labels = f"{{{inner}}}"
    page["penstock_partition_log_start_offset"].add(labels, log.log_start_offset)
    page["penstock_partition_high_watermark"].add(labels, log.high_watermark)
    page["penstock_partition_last_stable_offset"].add(labels, log.last_stable_offset)
    if log.config.retention_bytes > 0:
        used = round(log.size / log.config.retention_bytes, 4)
        page["penstock_partition_retention_used_ratio"].add(labels, used)
    if partition.leadership is None:
        return
    state = partition.leadership.state
    records, seconds = page["penstock_replica_lag_records"], page["penstock_replica_lag_seconds"]
    for replica, progress in state.followers.items():
        behind, late_ms = progress.lag(log.end_offset, log.log_start_offset, now_ms)
        labels = f'{{{inner},replica="{replica}"}}'
        records.add(labels, behind)
        seconds.add(labels, late_ms / 1000)


def _collect_traffic(page: Page, sources: Sources) -> Iterator[None]:
    records, arrived, left = (
        page[f"penstock_topic_{name}_total"] for name in ("records_in", "bytes_in", "bytes_out")
    )
    for nth, stats in enumerate(list(sources.partitions.traffic.topics.values())):
        labels = labelled(topic=stats.name)
        records.add(labels, stats.records_in)
        arrived.add(labels, stats.bytes_in)
        left.add(labels, stats.bytes_out)
        if nth % _STEP == 0:
            yield
