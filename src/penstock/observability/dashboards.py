"""Grafana dashboards: Cluster Overview, Broker Details, Topic Analytics, Client Monitoring.

A dashboard is a table of panels, from which `grafana.render` makes JSON. Queries use the metrics of `names`,
and get the variables of the dashboard there; a test evaluates all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["DASHBOARDS", "Dashboard", "Panel", "Query", "queries"]

_RATE: Final = "$__rate_interval"


class Query(NamedTuple):
    expression: str
    legend: str = ""
    #: whether a cluster without the feature has no samples
    optional: bool = False


class Panel(NamedTuple):
    title: str
    #: a unit of Grafana
    unit: str
    queries: tuple[Query, ...]
    #: whether it shows the last value instead of a graph
    is_stat: bool = False
    #: the value of a stat panel from which on it is red
    bad_from: float | None = None


class Dashboard(NamedTuple):
    name: str
    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{selector}[{_RATE}]))"


def _quantile(metric: str, by: str, selector: str = "", quantile: float = 0.99) -> str:
    return f"histogram_quantile({quantile}, sum by ({by}, le) (rate({metric}_bucket{selector}[{_RATE}])))"


def _stat(title: str, expression: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    return Panel(title, unit, (Query(expression),), True, bad_from)


_CLIENTS: Final = '{listener="client"}'
_OVERVIEW: Final = Dashboard(
    "cluster-overview",
    "Cluster Overview",
    (
        _stat("Active brokers", 'max(penstock_brokers{state="active"})'),
        _stat(
            "Brokers that are not active",
            'max(sum by (instance) (penstock_brokers{state!="active"}))',
            bad_from=1,
        ),
        _stat("Partitions without a leader", "max(penstock_offline_partitions)", bad_from=1),
        _stat("Partitions below min ISR", "sum(penstock_under_min_isr_partitions)", bad_from=1),
        _stat("Under-replicated partitions", "sum(penstock_under_replicated_partitions)", bad_from=1),
        _stat("Largest lag of a group", "max(penstock_group_lag_seconds) or vector(0)", "s", 60),
        _stat("Topics", "count(count by (topic) (penstock_topic_size_bytes))"),
        _stat("Partitions", "sum(penstock_leaders)"),
        _stat("Records written per second", f"sum(rate(penstock_topic_records_in_total[{_RATE}]))", "cps"),
        _stat("Bytes written", f"sum(rate(penstock_topic_bytes_in_total[{_RATE}]))", "Bps"),
        _stat("Bytes read", f"sum(rate(penstock_topic_bytes_out_total[{_RATE}]))", "Bps"),
        _stat(
            "Least free disk space",
            "min(penstock_disk_free_bytes / penstock_disk_total_bytes)",
            "percentunit",
        ),
        Panel("Brokers", "short", (Query("max by (state) (penstock_brokers)", "{{state}}"),)),
        Panel(
            "Broker health (1 = healthy)",
            "short",
            (Query("min by (broker_id) (kafka_analog_broker_health)", "broker {{broker_id}}"),),
        ),
        Panel("Active controller", "short", (Query("sum(penstock_active_controller)", "controllers"),)),
        Panel(
            "Topics and partitions",
            "short",
            (
                Query("sum(penstock_leaders)", "partitions"),
                Query("sum(penstock_partitions)", "replicas"),
                Query("count(count by (topic) (penstock_topic_size_bytes))", "topics"),
            ),
        ),
        Panel(
            "Records written per second",
            "cps",
            (Query(f"sum(rate(penstock_topic_records_in_total[{_RATE}]))", "records"),),
        ),
        Panel(
            "Throughput",
            "Bps",
            (
                Query(f"sum(rate(penstock_topic_bytes_in_total[{_RATE}]))", "in"),
                Query(f"sum(rate(penstock_topic_bytes_out_total[{_RATE}]))", "out"),
            ),
        ),
        Panel(
            "Partitions with problems",
            "short",
            (
                Query("max(penstock_offline_partitions)", "offline"),
                Query("sum(penstock_under_min_isr_partitions)", "below min ISR"),
                Query("sum(penstock_under_replicated_partitions)", "under-replicated"),
            ),
        ),
        Panel(
            "ISR changes",
            "cps",
            (
                Query(_rate("penstock_isr_shrinks_total", "instance"), "shrinks {{instance}}"),
                Query(_rate("penstock_isr_expands_total", "instance"), "expands {{instance}}"),
            ),
        ),
    ),
)
_BROKER: Final = Dashboard(
    "broker-details",
    "Broker Details",
    (
        Panel(
            "CPU", "percentunit", (Query(_rate("penstock_cpu_seconds_total", "instance"), "{{instance}}"),)
        ),
        Panel("Memory", "bytes", (Query("penstock_resident_memory_bytes", "{{instance}}"),)),
        Panel(
            "Free disk space",
            "percentunit",
            (Query("penstock_disk_free_bytes / penstock_disk_total_bytes", "{{instance}} {{dir}}"),),
        ),
        Panel(
            "Network",
            "Bps",
            (
                Query(_rate("penstock_network_bytes_in_total", "instance"), "in {{instance}}"),
                Query(_rate("penstock_network_bytes_out_total", "instance"), "out {{instance}}"),
            ),
        ),
        Panel(
            "Partitions",
            "short",
            (
                Query("penstock_partitions", "replicas {{instance}}"),
                Query("penstock_leaders", "leaders {{instance}}"),
            ),
        ),
        Panel(
            "Slow requests",
            "cps",
            (Query(_rate("penstock_slow_requests_total", "instance, api"), "{{instance}} {{api}}"),),
        ),
        Panel(
            "Produce P99",
            "s",
            (
                Query(
                    _quantile(
                        "penstock_request_duration_seconds", "instance", '{api="Produce",listener="client"}'
                    ),
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Requests per second",
            "reqps",
            (Query(_rate("penstock_requests_total", "api", _CLIENTS), "{{api}}"),),
        ),
        Panel(
            "Delay of the event loop, P99",
            "s",
            (Query(_quantile("penstock_loop_lag_seconds", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Duration of syncs, P99",
            "s",
            (Query(_quantile("penstock_fsync_seconds", "instance, dir"), "{{instance}} {{dir}}", True),),
        ),
        Panel(
            "Damaged ranges",
            "short",
            (
                Query("penstock_corruption_found_total", "found {{instance}}"),
                Query("penstock_corruption_repaired_total", "repaired {{instance}}"),
            ),
        ),
    ),
)
_TOPICS: Final = Dashboard(
    "topic-analytics",
    "Topic Analytics",
    (
        Panel(
            "Records written per second",
            "cps",
            (Query(_rate("penstock_topic_records_in_total", "topic"), "{{topic}}"),),
        ),
        Panel("Bytes written", "Bps", (Query(_rate("penstock_topic_bytes_in_total", "topic"), "{{topic}}"),)),
        Panel("Bytes read", "Bps", (Query(_rate("penstock_topic_bytes_out_total", "topic"), "{{topic}}"),)),
        Panel("Size", "bytes", (Query("sum by (topic) (penstock_topic_size_bytes)", "{{topic}}"),)),
        Panel(
            "Mean size of a record",
            "bytes",
            (
                Query(
                    "sum by (topic) (penstock_topic_bytes_in_total) "
                    "/ sum by (topic) (penstock_topic_records_in_total)",
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Consumer lag",
            "short",
            (Query("max by (group, topic) (penstock_group_lag_records)", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Consumer lag in time",
            "s",
            (Query("max by (group, topic) (penstock_group_lag_seconds)", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Share group lag",
            "short",
            (Query("max by (group, topic) (penstock_share_group_lag_records)", "{{group}} {{topic}}", True),),
        ),
        Panel(
            "Share group records in flight",
            "short",
            (Query("sum by (group, topic) (penstock_share_in_flight_records)", "{{group}} {{topic}}", True),),
        ),
        Panel(
            "Share group redeliveries",
            "cps",
            (Query(_rate("penstock_share_redeliveries_total", "group, topic"), "{{group}} {{topic}}", True),),
        ),
        Panel(
            "Dead letters",
            "cps",
            (
                Query(_rate("penstock_dead_letters_total", "instance"), "{{instance}} written", True),
                Query(_rate("penstock_dead_letters_failed_total", "instance"), "{{instance}} failed", True),
            ),
        ),
        Panel(
            "Delayed messages that targets refuse",
            "short",
            (Query("penstock_delayed_messages_set_aside", "{{instance}}", True),),
        ),
        Panel(
            "Replica lag in time",
            "s",
            (
                Query(
                    "max by (topic, replica) (penstock_replica_lag_seconds)", "{{topic}} on {{replica}}", True
                ),
            ),
        ),
        Panel(
            "Retention used",
            "percentunit",
            (Query("max by (topic) (penstock_partition_retention_used_ratio)", "{{topic}}", True),),
        ),
    ),
)
_CLIENT: Final = Dashboard(
    "client-monitoring",
    "Client Monitoring",
    (
        Panel("Connections", "short", (Query("sum by (listener) (penstock_connections)", "{{listener}}"),)),
        Panel(
            "Connections by software",
            "short",
            (Query("sum by (software) (penstock_client_connections)", "{{software}}"),),
        ),
        Panel(
            "New connections",
            "cps",
            (
                Query(_rate("penstock_connections_opened_total", "listener"), "opened {{listener}}"),
                Query(_rate("penstock_connections_refused_total", "reason"), "refused {{reason}}", True),
                Query(_rate("penstock_connections_rejected_total", "instance"), "rejected {{instance}}"),
            ),
        ),
        Panel(
            "Requests of producers and consumers",
            "reqps",
            (
                Query(
                    _rate("penstock_requests_total", "api", '{listener="client",api=~"Produce|Fetch"}'),
                    "{{api}}",
                ),
            ),
        ),
        Panel(
            "Latency, P99",
            "s",
            (
                Query(
                    _quantile(
                        "penstock_request_duration_seconds",
                        "api",
                        '{listener="client",api=~"Produce|OffsetCommit"}',
                    ),
                    "{{api}}",
                ),
            ),
        ),
        Panel(
            "Errors",
            "cps",
            (
                Query(
                    _rate("penstock_request_errors_total", "api, error", _CLIENTS), "{{api}} {{error}}", True
                ),
            ),
        ),
        Panel(
            "Group members",
            "short",
            (Query("max by (group) (penstock_group_members)", "{{group}}"),),
        ),
        Panel(
            "Rebalances",
            "short",
            (Query(f"increase(penstock_group_rebalances_total[{_RATE}])", "{{group}}"),),
        ),
        Panel(
            "Authentications",
            "cps",
            (
                Query(
                    _rate("penstock_authentications_total", "mechanism, result"),
                    "{{mechanism}} {{result}}",
                    True,
                ),
            ),
        ),
        Panel(
            "Throttle time, P99",
            "s",
            (Query(_quantile("penstock_throttle_seconds", "user"), "{{user}}", True),),
        ),
        Panel(
            "Gauges that clients have pushed, largest",
            "short",
            (Query("max by (metric) (penstock_client_gauge_max)", "{{metric}}", True),),
        ),
        Panel(
            "Sums that clients have pushed",
            "cps",
            (Query(_rate("penstock_client_sum_total", "metric"), "{{metric}}", True),),
        ),
    ),
)
DASHBOARDS: Final = (_OVERVIEW, _BROKER, _TOPICS, _CLIENT)


def queries(dashboard: Dashboard) -> Iterator[Query]:
    for panel in dashboard.panels:
        yield from panel.queries
