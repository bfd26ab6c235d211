"""The progress of a query, for Prometheus and for a terminal."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram

__all__ = ["QueryProgress"]


class QueryProgress:
    """Takes what batches report, and what Spark says of the query. `registry` is what `/metrics` shows.

    Reports come from the thread that runs batches; other threads only read the attributes. Metrics have the
    names of their pipeline in front, and `labels`.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        prefix: str,
        newest: str,
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`newest` is what freshness is measured from, in words."""
        self.clock = clock
        self.labels = dict(labels or {})
        self._batch_id = self._gauge(registry, f"{prefix}_batch_id", "The last completed batch.")
        self._lag = self._gauge(
            registry,
            f"{prefix}_lag_messages",
            "Messages in the topic that were not in the last batch when it was planned.",
        )
        self._freshness = self._gauge(
            registry, f"{prefix}_freshness_seconds", f"Time from {newest} to the end of the batch."
        )
        seconds = Histogram(
            f"{prefix}_batch_seconds",
            "Durations of batches.",
            list(self.labels),
            buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120),
            registry=registry,
        )
        self._seconds = seconds.labels(**self.labels) if self.labels else seconds
        # 0 would be a measurement, and a good one.
        for unknown in (self._batch_id, self._lag, self._freshness):
            unknown.set(math.nan)
        self.consumed = 0
        #: of the last batch; None before the first
        self.batch_id: int | None = None
        self.batch_s = 0.0
        #: None before the first valid message
        self.freshness_s: float | None = None
        self.rows_per_s = 0.0
        self.lag = 0
        self._reported_s = clock()

    def _gauge(self, registry: CollectorRegistry, name: str, text: str) -> Any:
        made = Gauge(name, text, list(self.labels), registry=registry)
        return made.labels(**self.labels) if self.labels else made

    def finished(self, batch_id: int, read_at_ms: int, consumed: int, newest_ms: int) -> None:
        """Take a batch that is done; `newest_ms` is 0 if it had no valid message."""
        now_s = self.clock()
        self.consumed += consumed
        self.batch_id = batch_id
        self._batch_id.set(batch_id)
        self.batch_s = max(0.0, now_s - read_at_ms / 1000)
        self._seconds.observe(self.batch_s)
        if newest_ms:
            self.freshness_s = max(0.0, now_s - newest_ms / 1000)
            self._freshness.set(self.freshness_s)
        elapsed_s, self._reported_s = now_s - self._reported_s, now_s
        self.rows_per_s = consumed / elapsed_s if elapsed_s > 0 else 0.0

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
