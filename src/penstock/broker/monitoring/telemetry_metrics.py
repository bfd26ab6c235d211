"""Metrics that clients push, and the export to an OpenTelemetry receiver."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.monitoring.sources import Sources
from penstock.observability.exposition import Page

__all__ = ["collect_telemetry"]


def collect_telemetry(page: Page, sources: Sources) -> Iterator[None]:
    telemetry, metrics = sources.client_telemetry, sources.metrics
    page.set("penstock_client_telemetry_instances", len(telemetry.instances))
    for error, count in telemetry.pushes.items():
        page.set("penstock_client_telemetry_pushes_total", count, error=error)
    aggregates = telemetry.aggregates
    for name, total in list(aggregates.sums.items()):
        page.set("penstock_client_sum_total", total, metric=name)
    yield
    for name, mean, largest in list(aggregates.gauges(int(1000 * sources.clock.monotonic()))):
        page.set("penstock_client_gauge_mean", mean, metric=name)
        page.set("penstock_client_gauge_max", largest, metric=name)
    page.set("penstock_client_metrics_left_out_total", aggregates.left_out)
    for name, counts in (("exported", metrics.exported), ("dropped", metrics.export_dropped)):
        for signal, count in counts.items():
            page.set(f"penstock_otlp_{name}_total", count, signal=signal)
    yield
