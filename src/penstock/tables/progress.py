"""The progress of a table, for Prometheus and for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from penstock.jobs.progress import QueryProgress
from penstock.tables.batches import Batch

__all__ = ["TableProgress", "batch_line"]


class TableProgress(QueryProgress):
    """Takes the report of each batch, and what Spark says of the query."""

    def __init__(
        self, registry: CollectorRegistry, table: str, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(registry, "penstock_table", "the newest message of a batch", {"table": table}, clock)
        self._messages = Counter(
            "penstock_table_messages",
            "Messages by outcome: row, deletion, dead_letter.",
            ["table", "outcome"],
            registry=registry,
        )
        self.rows = self.deleted = self.dead = 0

    def __call__(self, batch: Batch) -> None:
        for outcome, number in (
            ("row", batch.rows),
            ("deletion", batch.deleted),
            ("dead_letter", batch.dead),
        ):
            self._messages.labels(outcome=outcome, **self.labels).inc(number)
        self.rows += batch.rows
        self.deleted += batch.deleted
        self.dead += batch.dead
        self.finished(batch.batch_id, batch.read_at_ms, batch.read, batch.newest_ms)

    def summary(self) -> str:
        return f"{self.consumed} read: {self.rows} rows, {self.deleted} deletions, {self.dead} dead letters"


def batch_line(batch: Batch, progress: TableProgress) -> str:
    """A batch on one line."""
    brought = f"; new columns: {', '.join(batch.columns)}" if batch.columns else ""
    fresh = "" if progress.freshness_s is None else f"; freshness {progress.freshness_s:.1f} s"
    return (
        f"batch {batch.batch_id}: {batch.read} read, {batch.rows} rows, {batch.deleted} deletions, "
        f"{batch.dead} dead letters{fresh}{brought}"
    )
