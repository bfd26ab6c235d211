"""The metrics of `/metrics`: Penstock's own, and those of the original design (`kafka_analog_*`).

`docs/metrics.md` is rendered from these tables. A test compares them with the page of a running broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.observability.family import Family, Kind, by_name
from penstock.observability.link_families import LINKS

__all__ = ["ANALOG", "BACKUP", "BACKUP_METRICS", "GROUPS", "METRICS"]

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_API: Final = ("api", "listener")
_TOPIC: Final = ("topic",)
_PARTITION: Final = ("topic", "partition")
_REPLICA: Final = ("topic", "partition", "replica")
_GROUP: Final = ("group", "topic")


def _own(name: str, help: str, labels: tuple[str, ...] = (), kind: Kind | None = None) -> Family:
    return Family(f"penstock_{name}", kind or (_C if name.endswith("_total") else _G), help, labels)


_PROCESS: Final = (
    _own(
        "build_info", "Always 1. The labels are the versions of Penstock and Python.", ("version", "python")
    ),
    _own(
        "cluster_info",
        "Always 1. The labels are the ids of the cluster and the broker; queries join them by `instance`.",
        ("cluster_id", "broker_id"),
    ),
    _own("start_time_seconds", "When the broker started, in seconds since 1970."),
    _own(
        "loop_lag_seconds",
        "How late the event loop runs a timer that is due, sampled twice a second.",
        kind=_H,
    ),
    _own(
        "scrape_longest_slice_seconds",
        "The longest CPU time for which the metrics page before this one has held the event loop.",
    ),
    _own("gc_pause_seconds", "Pauses of Python's garbage collector.", kind=_H),
    _own("cpu_seconds_total", "CPU time of the process, in user and system mode."),
    _own("resident_memory_bytes", "Resident memory of the process."),
    _own("open_files", "File descriptors that the process has open."),
    _own("open_files_limit", "The limit of open file descriptors."),
    _own("log_lines_dropped_total", "Log lines that were dropped because their reader stalls.", ("level",)),
)
_REQUESTS: Final = (
    _own("requests_total", "Requests that were answered.", _API),
    _own("request_errors_total", "Error codes in responses, by name.", ("api", "listener", "error")),
    _own("request_failures_total", "Requests that ended in an unexpected error of the broker.", _API),
    _own(
        "request_duration_seconds",
        "Time from a complete request to its response, with the time that it waits for records or replicas.",
        _API,
        _H,
    ),
    _own(
        "slow_requests_total",
        "Requests that took at least `penstock.slow.request.ms`, without waits that the client wanted.",
        _API,
    ),
    _own("requests_in_flight", "Requests that wait for their responses.", _API),
    _own("unsupported_requests_total", "Requests for an API or a version that the broker does not have."),
)
_NET: Final = (
    _own("connections", "Open connections.", ("listener",)),
    _own(
        "client_connections", "Open connections by the client software that ApiVersions named.", ("software",)
    ),
    _own("connections_opened_total", "Connections that were accepted.", ("listener",)),
    _own(
        "connections_refused_total",
        "Connections that a limit has refused. The reason is the config of the limit.",
        ("listener", "reason"),
    ),
    _own("connections_rejected_total", "Connections that were closed because of invalid bytes."),
    _own("connections_expired_total", "Connections that were closed because they were idle."),
    _own("receive_buffer_bytes", "Memory of requests that have not arrived whole.", ("listener",)),
    _own("network_bytes_in_total", "Bytes that were received.", ("listener",)),
    _own("network_bytes_out_total", "Bytes that were sent.", ("listener",)),
)
_SECURITY: Final = (
    _own("authentications_total", "Authentications by mechanism and result.", ("mechanism", "result")),
    _own("tls_handshake_failures_total", "Failed TLS handshakes by OpenSSL's reason.", ("reason",)),
    _own(
        "tls_certificate_expiry_timestamp_seconds",
        "When the certificate of a listener expires, in seconds since 1970.",
        ("listener",),
    ),
    _own("throttle_seconds", "Throttle times that client quotas have caused, by user.", ("user",), _H),
    _own("authorization_denied_total", "Operations that ACLs have denied.", ("operation", "resource")),
    _own(
        "audit_events_dropped_total",
        "Audit events that were dropped by the limit per second, or by the full queue of a sink.",
        ("sink",),
    ),
)
_TOPICS: Final = (
    _own("topic_records_in_total", "Records that clients have written on this broker.", _TOPIC),
    _own("topic_bytes_in_total", "Bytes of the batches that clients have written on this broker.", _TOPIC),
    _own("topic_bytes_out_total", "Bytes of the batches that clients have read from this broker.", _TOPIC),
    _own("topic_size_bytes", "Bytes of the logs of the replicas on this broker.", _TOPIC),
)
_PARTITIONS: Final = (
    _own("partition_log_start_offset", "The first offset. Leaders report it.", _PARTITION),
    _own(
        "partition_local_log_start_offset",
        "The first offset on the disk; the archive has those before. Leaders of tiered topics report it.",
        _PARTITION,
    ),
    _own("partition_high_watermark", "The end of the committed records. Leaders report it.", _PARTITION),
    _own(
        "partition_last_stable_offset",
        "The end of what consumers with read_committed see. Leaders report it.",
        _PARTITION,
    ),
    _own(
        "partition_retention_used_ratio",
        "The size of the log by `retention.bytes`. Leaders of topics with that limit report it.",
        _PARTITION,
    ),
)
_REPLICATION: Final = (
    _own("partitions", "Replicas on this broker."),
    _own("leaders", "Partitions that this broker leads."),
    _own(
        "under_replicated_partitions", "Partitions led here that have fewer in-sync replicas than replicas."
    ),
    _own(
        "under_min_isr_partitions",
        "Partitions led here with fewer in-sync replicas than `min.insync.replicas`.",
    ),
    _own("offline_partitions", "Partitions of the cluster without a leader, as this broker knows."),
    _own("isr_shrinks_total", "In-sync replicas of partitions led here became fewer."),
    _own(
        "isr_shrinks_unplanned_total",
        "In-sync replicas of partitions led here became fewer, and not by a controlled shutdown.",
    ),
    _own("isr_expands_total", "In-sync replicas of partitions led here became more."),
    _own("replication_bytes_in_total", "Bytes that follower fetchers have received."),
    _own("replication_bytes_out_total", "Bytes that followers have fetched."),
    _own("replication_errors_total", "Fetched records or high watermarks that a follower could not apply."),
    _own(
        "replica_lag_records",
        "Records that a follower lacks. The leader reports it, with the broker id of the follower.",
        _REPLICA,
    ),
    _own(
        "replica_lag_seconds",
        "For how long a follower has not had all records of its leader. The leader reports it; a new leader "
        "counts from its election on.",
        _REPLICA,
    ),
)
_QUORUM: Final = (
    _own("active_controller", "1 on the active controller."),
    _own("quorum_epoch", "The epoch of the metadata quorum."),
    _own("metadata_lag_records", "Committed metadata records that this node has not applied."),
    _own("elections_total", "Leaders of the metadata quorum that this node has seen elected."),
    _own("brokers", "Registered brokers by state: active, fenced, shutting_down.", ("state",)),
)
_GROUPS: Final = (
    _own(
        "group_lag_records",
        "Offsets between the committed offsets of a group and the high watermarks. The coordinator reports "
        "it. In a topic that the group reads, a partition without a committed offset counts from its first "
        "record.",
        _GROUP,
    ),
    _own(
        "group_lag_seconds",
        "For how long the oldest record that a group has not committed has been readable, for the partition"
        " with the most. The coordinator measures it; it begins at most when the coordinator has started to"
        " observe the partition.",
        _GROUP,
    ),
    _own("group_members", "Members of a group.", ("group",)),
    _own(
        "group_idle_seconds",
        "For how long a group has had no member and has committed no offset; 0 if it has members.",
        ("group",),
    ),
    _own(
        "group_rebalances_total",
        "The generation or epoch of a group, which each rebalance raises.",
        ("group",),
    ),
)
_SHARES: Final = (
    _own(
        "share_group_lag_records",
        "Records that a share group has not finished. The share coordinator reports it.",
        _GROUP,
    ),
    _own(
        "share_group_lag_seconds",
        "For how long the oldest record that a share group has not finished has been readable, for the "
        "partition with the most. The share coordinator measures it, as `penstock_group_lag_seconds`.",
        _GROUP,
    ),
    _own(
        "share_in_flight_records",
        "Records between the start offset and the end of what was delivered. The leader of the partition "
        "reports this and the following metrics.",
        _GROUP,
    ),
    _own("share_available_records", "Records in flight that wait to be delivered again.", _GROUP),
    _own(
        "share_deliveries_total",
        "Records that were delivered to members of a share group. This counter and the next three end with "
        "the topic, and ten minutes after the group has no session on the broker any more.",
        _GROUP,
    ),
    _own("share_redeliveries_total", "Deliveries after the first one of a record.", _GROUP),
    _own("share_expired_locks_total", "Records whose acquisition lock has expired.", _GROUP),
    _own(
        "share_acknowledgements_total",
        "Acknowledged records by type: accept, release, reject, renew, gap.",
        (*_GROUP, "type"),
    ),
    _own("share_sessions", "Share sessions of members."),
    _own("dead_letters_total", "Dead letters that were written."),
    _own("dead_letters_failed_total", "Records that were archived without their dead letter."),
    _own("delayed_messages_refused_total", "Attempts to move a delayed message that its target refused."),
    _own("delayed_messages_set_aside", "Delayed messages that wait because their target refuses them."),
)
_TRANSACTIONS: Final = (
    _own("transactions_open", "Open transactions that this broker coordinates."),
    _own("transactions_oldest_open_seconds", "The age of the oldest of them."),
    _own(
        "transactions_overdue",
        "Transactions that are open, or lack markers in partitions, although their timeout has passed.",
    ),
    _own("transactions_two_phase_open", "Open two-phase transactions (KIP-939), which no timeout ends."),
    _own("transactions_two_phase_late", "Those that are older than `transaction.max.timeout.ms`."),
    _own("transaction_commits_total", "Transactions that this broker has decided to commit."),
    _own("transaction_aborts_total", "Transactions that this broker has decided to abort."),
)
_STORAGE: Final = (
    _own("disk_free_bytes", "Bytes of a data directory's volume that the broker can still use.", ("dir",)),
    _own("disk_total_bytes", "Bytes of a data directory's volume without reserved ones.", ("dir",)),
    _own("disk_free_min_ratio", "The free share of a volume below which it is low on space.", ("dir",)),
    _own("fsync_seconds", "Durations of successful syncs.", ("dir",), _H),
    _own("directories_offline", "Data directories that are offline after an error."),
    _own("directories_full", "Data directories that take no records for lack of space."),
    _own(
        "deletion_by_time_suspended",
        "1 for the cause that suspends deletion by time: the broker does not believe its clock.",
        ("cause",),
    ),
    _own(
        "health_level", "Health: 0 Healthy, 1 Degraded, 2 Unknown, 3 Unhealthy; all is the worst.", ("part",)
    ),
    _own("health_findings", "Reasons for a level below Healthy, by their code.", ("part", "code")),
    _own("clock_suspect", "1 if an operator has to check the clock, or a round of retention that waits."),
    _own("clock_grace_seconds", "How long the time of the clock is not accepted yet."),
    _own("clock_skew_seconds", "How far the clock is ahead of the other brokers' clocks."),
    _own(
        "remote_fetch_requests_total",
        "Reads of chunks of an archive, of tiered storage or of a mounted backup.",
    ),
    _own("remote_fetch_bytes_total", "Bytes of these reads."),
    _own("remote_fetch_errors_total", "Reads of an archive that failed, of chunks and of documents."),
    _own("remote_cache_bytes", "Size of the cache of chunks of an archive."),
    _own("remote_archive_available", "1 if the archive of tiered storage could be opened, 0 if not."),
    _own(
        "remote_log_size_bytes",
        "Bytes of the batches in the archive, of the partitions led here.",
        ("topic",),
    ),
    _own("remote_copy_requests_total", "Objects that were put into the archive and verified.", ("topic",)),
    _own("remote_copy_bytes_total", "Bytes of these objects.", ("topic",)),
    _own("remote_copy_errors_total", "Turns of copying a partition to the archive that failed.", ("topic",)),
    _own("remote_copy_lag_bytes", "Bytes of sealed segments that wait for a copy.", ("topic",)),
    _own("remote_copy_lag_segments", "Sealed segments that wait for a copy.", ("topic",)),
    _own(
        "remote_deletion_suspended",
        "Replicas that free no disk because the archive contradicts their logs.",
        ("topic",),
    ),
    _own("scrubbed_bytes_total", "Bytes of sealed segments whose checksums were verified."),
    _own("corruption_found_total", "Damaged ranges that were found."),
    _own("corruption_repaired_total", "Damaged ranges that were repaired from replicas."),
    _own("replica_differences_total", "Ranges in which replicas differ although their checksums are valid."),
)
_CLIENTS: Final = (
    _own("client_telemetry_instances", "Client instances that push metrics (KIP-714)."),
    _own("client_telemetry_pushes_total", "PushTelemetry requests by the error of the response.", ("error",)),
    _own(
        "client_sum_total",
        "Sums that clients have pushed, over all clients and their attributes, by the name of the metric.",
        ("metric",),
    ),
    _own("client_gauge_mean", "The mean of a gauge over the clients that pushed it lately.", ("metric",)),
    _own("client_gauge_max", "The largest value of a gauge that a client pushed lately.", ("metric",)),
    _own(
        "client_metrics_left_out_total",
        "Pushed metrics without a place above: invalid names, or too many names.",
    ),
)
_EXPORT: Final = (
    _own("otlp_exported_total", "Spans and pushes that the OpenTelemetry receiver has taken.", ("signal",)),
    _own("otlp_dropped_total", "Spans and pushes that were dropped.", ("signal",)),
)

#: the tables by the title of their section on the page
GROUPS: Final[Mapping[str, tuple[Family, ...]]] = {
    "Process": _PROCESS,
    "Requests": _REQUESTS,
    "Connections": _NET,
    "Security": _SECURITY,
    "Topics": _TOPICS,
    "Partitions": _PARTITIONS,
    "Replication": _REPLICATION,
    "Metadata quorum": _QUORUM,
    "Consumer groups": _GROUPS,
    "Share groups": _SHARES,
    "Transactions": _TRANSACTIONS,
    "Storage": _STORAGE,
    "Links": LINKS,
    "Metrics of clients": _CLIENTS,
    "OpenTelemetry": _EXPORT,
}


def _analog(name: str, help: str, labels: tuple[str, ...] = (), kind: Kind | None = None) -> Family:
    return Family(f"kafka_analog_{name}", kind or (_C if name.endswith("_total") else _G), help, labels)


ANALOG: Final = (
    _analog("messages_produced_total", "Total number of messages produced."),
    _analog(
        "messages_consumed_total",
        "Total number of messages consumed: an estimate by the mean size of the messages produced.",
    ),
    _analog("bytes_produced_total", "Bytes of the batches that clients have written."),
    _analog("bytes_consumed_total", "Bytes of the batches that clients have read."),
    _analog("produce_latency_seconds", "Latency of produce operations.", kind=_H),
    _analog(
        "consume_latency_seconds", "Latency of fetches by clients, with the time that they wait.", kind=_H
    ),
    _analog(
        "replication_latency_seconds",
        "Latency of fetches by followers, with the time that they wait.",
        kind=_H,
    ),
    _analog("produce_latency_p99_seconds", "The 99th percentile of produce latencies since the start."),
    _analog("fetch_latency_p99_seconds", "The 99th percentile of fetch latencies since the start."),
    _analog("active_connections", "Open connections."),
    _analog("partitions", "Replicas on this broker."),
    _analog("leaders", "Partitions that this broker leads."),
    _analog("replicas", "Replicas on this broker that follow a leader."),
    _analog("under_replicated_partitions", "Partitions led here with fewer in-sync replicas than replicas."),
    _analog("broker_health", "Health status of brokers (1=healthy, 0=unhealthy).", ("broker_id",)),
    _analog("produce_errors_total", "Error codes in Produce responses.", ("type",)),
    _analog("consume_errors_total", "Error codes in Fetch responses of clients.", ("type",)),
    _analog("replication_errors_total", "Errors of replication.", ("type",)),
    _analog("cpu_seconds_total", "CPU time of the process."),
    _analog("memory_usage_bytes", "Resident memory of the process."),
    _analog("disk_usage_bytes", "Bytes of the logs on this broker."),
    _analog("network_io_bytes_total", "Bytes that were received and sent."),
)

#: the metrics of `penstock backup run --metrics`
BACKUP: Final = (
    _own("backup_start_time_seconds", "When the backup started, in seconds since 1970."),
    _own("backup_interval_seconds", "The interval of cuts (`--every`)."),
    _own(
        "backup_newest_cut_timestamp_seconds",
        "The time of the newest cut in the archive, in seconds since 1970. No sample while none is known.",
    ),
    _own("backup_cuts_total", "Cuts that were taken."),
    _own("backup_failures_total", "Cuts that failed."),
    _own("backup_cut_duration_seconds", "How long the last cut took."),
    _own("backup_verification_interval_seconds", "The interval of verifications (`--verify-every`)."),
    _own(
        "backup_verified_timestamp_seconds",
        "The end of the last verification that read every object of a cut, in seconds since 1970. No sample "
        "before the first one.",
    ),
    _own(
        "backup_unrestorable_partitions",
        "Partitions that cannot be restored from the cut that was verified last. No sample before it.",
    ),
    _own("backup_verification_failures_total", "Verifications that the object store did not let end."),
)
#: all families of `penstock backup run --metrics` by name
BACKUP_METRICS: Final = by_name(BACKUP)
#: all families of `/metrics` by name
METRICS: Final = by_name([*(family for table in GROUPS.values() for family in table), *ANALOG])
