"""Metrics of the process, the metadata quorum, transactions and storage."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

import penstock
from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.logs import dropped_lines
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.sources import Snapshot, Sources
from penstock.broker.node.clock_watch import ClockWatch
from penstock.observability.exposition import Page, labelled
from penstock.timekeeping.trust import Cause

__all__ = ["broker_states", "collect_process", "collect_quorum", "collect_storage", "collect_transactions"]


def collect_process(page: Page, sources: Sources, snapshot: Snapshot, watch: LoopWatch) -> Iterator[None]:
    page.set("penstock_build_info", 1, version=penstock.__version__, python=platform.python_version())
    page.set("penstock_cluster_info", 1, cluster_id=sources.node.cluster_id, broker_id=sources.node_id)
    page.set("penstock_start_time_seconds", sources.started_s)
    for name, histogram in (("loop_lag", watch.lag), ("gc_pause", watch.gc_pauses)):
        page[f"penstock_{name}_seconds"].add_histogram("", histogram.buckets, histogram.total_ns)
    page.set("penstock_cpu_seconds_total", round(snapshot.cpu_s, 3))
    page.set("penstock_resident_memory_bytes", snapshot.resident_bytes)
    page.set("penstock_open_files", snapshot.open_files)
    page.set("penstock_open_files_limit", DESCRIPTORS.limit)
    for level, count in dropped_lines().items():
        page.set("penstock_log_lines_dropped_total", count, level=level)
    yield


def broker_states(sources: Sources) -> Counter[str]:
    states = Counter({"active": 0, "fenced": 0, "shutting_down": 0})
    for broker in sources.image.brokers.values():
        states[
            "fenced" if broker.fenced else "shutting_down" if broker.in_controlled_shutdown else "active"
        ] += 1
    return states


def collect_quorum(page: Page, sources: Sources) -> Iterator[None]:
    node, state = sources.node, sources.node.quorum.state
    page.set("penstock_active_controller", int(node.controller.is_active))
    page.set("penstock_quorum_epoch", state.epoch)
    page.set("penstock_metadata_lag_records", max(0, state.high_watermark - node.loader.applied))
    page.set("penstock_elections_total", node.elections)
    for name, count in broker_states(sources).items():
        page.set("penstock_brokers", count, state=name)
    yield


def collect_transactions(page: Page, sources: Sources) -> Iterator[None]:
    coordinator = sources.transactions
    count, overdue, oldest_ms, now_ms = 0, 0, None, sources.clock.now_ms()
    two_phase = late = 0
    for index in list(coordinator.runtime.indexes()):
        shard = coordinator.runtime.shard(index)
        if shard is not None:
            began = shard.open_since()
            count += len(began)
            overdue += shard.overdue(now_ms)
            external, old = shard.two_phase(now_ms)
            two_phase, late = two_phase + external, late + old
            oldest_ms = min([*began, *([] if oldest_ms is None else [oldest_ms])], default=None)
            yield
    age_ms = 0 if oldest_ms is None else now_ms - oldest_ms
    page.set("penstock_transactions_open", count)
    page.set("penstock_transactions_overdue", overdue)
    page.set("penstock_transactions_two_phase_open", two_phase)
    page.set("penstock_transactions_two_phase_late", late)
    page.set("penstock_transactions_oldest_open_seconds", max(0, age_ms) / 1000)
    page.set("penstock_transaction_commits_total", coordinator.committed)
    page.set("penstock_transaction_aborts_total", coordinator.aborted)


def collect_storage(page: Page, sources: Sources, snapshot: Snapshot) -> Iterator[None]:
    partitions, metrics = sources.partitions, sources.metrics
    for path, space in snapshot.space.items():
        page.set("penstock_disk_free_bytes", space.usable, dir=path)
        page.set("penstock_disk_total_bytes", space.capacity, dir=path)
        if space.capacity > 0:
            page.set("penstock_disk_free_min_ratio", sources.free_share_min(space.capacity), dir=path)
    for flusher in partitions.flushers():
        durations = flusher.durations
        labels = labelled(dir=flusher.directory)
        page["penstock_fsync_seconds"].add_histogram(labels, durations.buckets, durations.total_ns)
    offline = sum(directory.health.offline is not None for directory in partitions.directories)
    page.set("penstock_directories_offline", offline + len(partitions.data.missing))
    page.set("penstock_directories_full", sum(d.health.full is not None for d in partitions.directories))
    _collect_clock(page, sources.node.clock_watch)
    page.set("penstock_remote_fetch_requests_total", metrics.remote.requests)
    page.set("penstock_remote_fetch_bytes_total", metrics.remote.bytes_read)
    page.set("penstock_remote_fetch_errors_total", metrics.remote.errors)
    page.set("penstock_remote_cache_bytes", metrics.remote.cached_bytes)
    if metrics.copies.available is not None:
        page.set("penstock_remote_archive_available", int(metrics.copies.available))
    for topic, copies in list(metrics.copies.topics.items()):
        page.set("penstock_remote_log_size_bytes", copies.archived_bytes, topic=topic)
        page.set("penstock_remote_copy_requests_total", copies.requests, topic=topic)
        page.set("penstock_remote_copy_bytes_total", copies.bytes, topic=topic)
        page.set("penstock_remote_copy_errors_total", copies.errors, topic=topic)
        page.set("penstock_remote_copy_lag_bytes", copies.lag_bytes, topic=topic)
        page.set("penstock_remote_copy_lag_segments", copies.lag_segments, topic=topic)
        page.set("penstock_remote_deletion_suspended", copies.suspended, topic=topic)
    page.set("penstock_scrubbed_bytes_total", metrics.scrubbed_bytes)
    page.set("penstock_corruption_found_total", metrics.corruption_found)
    page.set("penstock_corruption_repaired_total", metrics.corruption_repaired)
    page.set("penstock_replica_differences_total", metrics.differences_found)
    yield


def _collect_clock(page: Page, watch: ClockWatch) -> None:
    doubt = watch.doubt
    for cause in Cause:
        suspended = doubt is not None and doubt.cause is cause
        page.set("penstock_deletion_by_time_suspended", int(suspended), cause=cause.value)
    page.set("penstock_clock_suspect", int(doubt is not None and doubt.is_alarming))
    page.set("penstock_clock_grace_seconds", 0 if doubt is None else max(0, round(doubt.left_ms / 1000)))
    if watch.skew_ms is not None:
        page.set("penstock_clock_skew_seconds", watch.skew_ms / 1000)
