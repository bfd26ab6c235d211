"""Metrics of topics, partitions and replication."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.broker.monitoring.sources import Sources, hosted
from penstock.broker.replica.partition import Partition
from penstock.observability.exposition import Page, escaped, labelled
from penstock.observability.scrape_options import Detail

__all__ = ["ReplicaCounts", "collect_partitions"]

_OFFSETS: Final = (
    "penstock_partition_log_start_offset",
    "penstock_partition_high_watermark",
    "penstock_partition_last_stable_offset",
)
_LOCAL: Final = "penstock_partition_local_log_start_offset"
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
        state = partition.leader_state
        if state is not None:
            counts.under_replicated += len(state.isr) <= len(state.followers)
            counts.under_min_isr += not state.enough_replicas()


class Totals:
    """The samples of several partitions in one: sums of offsets, the largest lags and ratios."""

    __slots__ = ("lacking", "late_s", "local", "offsets", "size", "used")

    def __init__(self) -> None:
        self.size = 0
        #: log start offsets, high watermarks and last stable offsets; None if no partition is led here
        self.offsets: tuple[int, int, int] | None = None
        #: local log start offsets of tiered topics
        self.local: int | None = None
        self.used: float | None = None
        #: by broker id of the follower
        self.lacking: dict[int, int] = {}
        self.late_s: dict[int, float] = {}

    def add(self, partition: Partition, now_ms: int) -> None:
        """Add the samples of a partition that is led here."""
        log, (start, end, stable) = partition.log, self.offsets or (0, 0, 0)
        self.offsets = start + log.log_start_offset, end + log.high_watermark, stable + log.last_stable_offset
        if log.config.remote_storage_enable:
            self.local = (self.local or 0) + log.local_log_start_offset
        if log.config.retention_bytes > 0:
            self.used = max(self.used or 0.0, round(log.size / log.config.retention_bytes, 4))
        for replica, behind, late_s in _lags(partition, now_ms):
            self.lacking[replica] = max(self.lacking.get(replica, 0), behind)
            self.late_s[replica] = max(self.late_s.get(replica, 0.0), late_s)

    def render(self, page: Page, inner: str) -> None:
        """Add the samples to a page; `inner` are their labels, if there are any."""
        labels, comma = f"{{{inner}}}" if inner else "", "," if inner else ""
        page["penstock_topic_size_bytes"].add(labels, self.size)
        if self.offsets is not None:
            for name, offset in zip(_OFFSETS, self.offsets, strict=True):
                page[name].add(labels, offset)
        if self.local is not None:
            page[_LOCAL].add(labels, self.local)
        if self.used is not None:
            page["penstock_partition_retention_used_ratio"].add(labels, self.used)
        for replica, behind in self.lacking.items():
            of_replica = f'{{{inner}{comma}replica="{replica}"}}'
            page["penstock_replica_lag_records"].add(of_replica, behind)
            page["penstock_replica_lag_seconds"].add(of_replica, self.late_s[replica])


def collect_partitions(
    page: Page, sources: Sources, counts: ReplicaCounts, detail: Detail = Detail.PARTITION
) -> Iterator[None]:
    """Topics, partitions and replication; fills `counts`."""
    now_ms = int(sources.clock.monotonic() * 1000)
    sizes = page["penstock_topic_size_bytes"]
    nth, totals = 0, Totals()
    for topic, partitions in hosted(sources.partitions, sources.image):
        name, before = escaped(topic), totals.size
        for partition in partitions:
            count(partition, counts)
            totals.size += partition.log.size
            if partition.leading:
                if detail is Detail.PARTITION:
                    _add_leader(page, partition, name, now_ms)
                else:
                    totals.add(partition, now_ms)
            nth += 1
            if nth % _STEP == 0:
                yield
        if detail is Detail.PARTITION:
            sizes.add(f'{{topic="{name}"}}', totals.size - before)
        elif detail is Detail.TOPIC:
            totals.render(page, f'topic="{name}"')
            totals = Totals()
    if detail is Detail.BROKER:
        totals.render(page, "")
    yield from _collect_traffic(page, sources, detail)
    page.set("penstock_partitions", counts.partitions)
    page.set("penstock_leaders", counts.leaders)
    page.set("penstock_under_replicated_partitions", counts.under_replicated)
    page.set("penstock_under_min_isr_partitions", counts.under_min_isr)
    page.set("penstock_offline_partitions", len(sources.image.leaderless))
    metrics = sources.metrics
    page.set("penstock_isr_shrinks_total", metrics.isr_shrinks)
    page.set("penstock_isr_shrinks_unplanned_total", metrics.isr_shrinks_unplanned)
    page.set("penstock_isr_expands_total", metrics.isr_expands)
    page.set("penstock_replication_bytes_in_total", metrics.replication_bytes_in)
    page.set("penstock_replication_bytes_out_total", metrics.replication_bytes_out)
    page.set("penstock_replication_errors_total", metrics.replication_errors)


def _add_leader(page: Page, partition: Partition, topic: str, now_ms: int) -> None:
    log = partition.log
    inner = f'topic="{topic}",partition="{partition.index}"'
    labels = f"{{{inner}}}"
    for name, offset in zip(
        _OFFSETS, (log.log_start_offset, log.high_watermark, log.last_stable_offset), strict=True
    ):
        page[name].add(labels, offset)
    if log.config.remote_storage_enable:
        page[_LOCAL].add(labels, log.local_log_start_offset)
    if log.config.retention_bytes > 0:
        used = round(log.size / log.config.retention_bytes, 4)
        page["penstock_partition_retention_used_ratio"].add(labels, used)
    records, seconds = page["penstock_replica_lag_records"], page["penstock_replica_lag_seconds"]
    for replica, behind, late_s in _lags(partition, now_ms):
        labels = f'{{{inner},replica="{replica}"}}'
        records.add(labels, behind)
        seconds.add(labels, late_s)


def _lags(partition: Partition, now_ms: int) -> Iterator[tuple[int, int, float]]:
    """Broker id of each follower, the records that it lacks, and for how long."""
    if partition.leader_state is None:
        return
    log = partition.log
    for replica, progress in partition.leader_state.followers.items():
        behind, late_ms = progress.lag(log.end_offset, log.log_start_offset, now_ms)
        yield replica, behind, late_ms / 1000


def _collect_traffic(page: Page, sources: Sources, detail: Detail) -> Iterator[None]:
    records, arrived, left = (
        page[f"penstock_topic_{name}_total"] for name in ("records_in", "bytes_in", "bytes_out")
    )
    totals = [0, 0, 0]
    for nth, stats in enumerate(list(sources.partitions.traffic.topics.values())):
        if detail is Detail.BROKER:
            for at, value in enumerate((stats.records_in, stats.bytes_in, stats.bytes_out)):
                totals[at] += value
        else:
            labels = labelled(topic=stats.name)
            records.add(labels, stats.records_in)
            arrived.add(labels, stats.bytes_in)
            left.add(labels, stats.bytes_out)
        if nth % _STEP == 0:
            yield
    if detail is Detail.BROKER:
        for samples, total in zip((records, arrived, left), totals, strict=True):
            samples.add("", total)
