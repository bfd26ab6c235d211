"""The progress of a pipeline, for Prometheus and for a terminal."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from penstock.telemetry.pipeline.names import VERDICTS

if TYPE_CHECKING:
    from penstock.telemetry.pipeline.batches import BatchReport

__all__ = ["Progress"]


class Progress:
    """Takes the report of each batch, and what Spark says of the query. `registry` is what `/metrics` shows.

    Reports come from the thread that runs batches; other threads only read the attributes.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rows = Counter("penstock_pipeline_rows", "Messages by verdict.", ["verdict"], registry=registry)
        self._alerts = Counter(
            "penstock_pipeline_alerts", "Alerts by rule and state.", ["rule", "state"], registry=registry
        )
        self._batch_id = Gauge("penstock_pipeline_batch_id", "The last completed batch.", registry=registry)
        self._lag = Gauge(
            "penstock_pipeline_lag_messages",
            "Messages in the topic that were not in the last batch when it was planned.",
            registry=registry,
        )
        self._freshness = Gauge(
            "penstock_pipeline_freshness_seconds",
            "Time from the newest sample of a batch to the end of the batch.",
            registry=registry,
        )
        self._seconds = Histogram(
            "penstock_pipeline_batch_seconds",
            "Durations of batches.",
            buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120),
            registry=registry,
        )
        # 0 would be a measurement, and a good one.
        for unknown in (self._batch_id, self._lag, self._freshness):
            unknown.set(math.nan)
        self.consumed = 0
        self.totals = dict.fromkeys(VERDICTS, 0)
        self.opened = 0
        #: of the last batch; None before the first
        self.batch_id: int | None = None
        self.batch_s = 0.0
        #: None before the first valid sample
        self.freshness_s: float | None = None
        self.rows_per_s = 0.0
        self.lag = 0
        self._reported_s = clock()

    def __call__(self, report: BatchReport) -> None:
        now_s = self._clock()
        for verdict in VERDICTS:
            number = getattr(report.counts, verdict)
            self._rows.labels(verdict).inc(number)
            self.totals[verdict] += number
        for alert in report.alerts:
            self._alerts.labels(alert.rule, alert.state).inc()
            self.opened += alert.state == "open"
        self.consumed += report.counts.consumed
        self.batch_id = report.batch_id
        self._batch_id.set(report.batch_id)
        self.batch_s = max(0.0, now_s - report.read_at_ms / 1000)
        self._seconds.observe(self.batch_s)
        if report.counts.newest_ms:
            self.freshness_s = max(0.0, now_s - report.counts.newest_ms / 1000)
            self._freshness.set(self.freshness_s)
        elapsed_s, self._reported_s = now_s - self._reported_s, now_s
        self.rows_per_s = report.counts.consumed / elapsed_s if elapsed_s > 0 else 0.0

    def saw(self, query: Mapping[str, Any] | None) -> None:
        """Take Spark's progress of the query (`lastProgress`); there is none before its first batch."""
        if query is None:
            return
        behind = [_total(each["latestOffset"]) - _total(each["endOffset"]) for each in query["sources"]]
        self.lag = max(0, sum(behind))
        self._lag.set(self.lag)


def _total(offsets: str | None) -> int:
    """The sum of a source's offsets, which are JSON by topic and partition."""
    by_topic: dict[str, dict[str, int]] = json.loads(offsets or "null") or {}
    return sum(offset for partitions in by_topic.values() for offset in partitions.values())
