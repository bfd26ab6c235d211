"""The progress of a pipeline, for Prometheus and for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter

from penstock.jobs.progress import QueryProgress
from penstock.telemetry.pipeline.names import VERDICTS

if TYPE_CHECKING:
    from penstock.telemetry.pipeline.batches import BatchReport

__all__ = ["Progress"]


class Progress(QueryProgress):
    """Takes the report of each batch, and what Spark says of the query."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        super().__init__(registry, "penstock_pipeline", "the newest sample of a batch", clock=clock)
        self._rows = Counter("penstock_pipeline_rows", "Messages by verdict.", ["verdict"], registry=registry)
        self._alerts = Counter(
            "penstock_pipeline_alerts", "Alerts by rule and state.", ["rule", "state"], registry=registry
        )
        self.totals = dict.fromkeys(VERDICTS, 0)
        self.opened = 0

    def __call__(self, report: BatchReport) -> None:
        counts = report.counts
        for verdict in VERDICTS:
            number = getattr(counts, verdict)
            self._rows.labels(verdict).inc(number)
            self.totals[verdict] += number
        for alert in report.alerts:
            self._alerts.labels(alert.rule, alert.state).inc()
            self.opened += alert.state == "open"
        self.finished(report.batch_id, report.read_at_ms, counts.consumed, counts.newest_ms)
