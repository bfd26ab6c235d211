"""What a pipeline has done so far, for Prometheus and for whoever watches a terminal."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.telemetry.pipeline.batches import BatchReport

__all__ = ["Progress"]

_VERDICTS = ("valid", "dead_lettered", "duplicates", "late")


class Progress:
    """Takes the report of each batch. `registry` is what `/metrics` shows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows = Counter(
            "penstock_pipeline_rows", "Messages by what became of them.", ["verdict"], registry=registry
        )
        self._alerts = Counter(
            "penstock_pipeline_alerts", "Alerts by rule and state.", ["rule", "state"], registry=registry
        )
        self._batch_id = Gauge(
            "penstock_pipeline_batch_id", "The last batch that is done.", registry=registry
        )
        self._lag = Gauge(
            "penstock_pipeline_freshness_seconds",
            "From the newest sample of a batch to its end.",
            registry=registry,
        )
        self._seconds = Histogram(
            "penstock_pipeline_batch_seconds",
            "How long batches took.",
            buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120),
            registry=registry,
        )
        self.consumed = 0
        self.totals = dict.fromkeys(_VERDICTS, 0)
        self.opened = 0

    def __call__(self, report: BatchReport) -> None:
        now_s = time.time()
        for verdict in _VERDICTS:
            number = getattr(report.counts, verdict)
            self._rows.labels(verdict).inc(number)
            self.totals[verdict] += number
        for alert in report.alerts:
            self._alerts.labels(alert.rule, alert.state).inc()
            self.opened += alert.state == "open"
        self.consumed += report.counts.consumed
        self._batch_id.set(report.batch_id)
        self._seconds.observe(max(0.0, now_s - report.read_at_ms / 1000))
        if report.counts.newest_ms:
            self._lag.set(max(0.0, now_s - report.counts.newest_ms / 1000))
