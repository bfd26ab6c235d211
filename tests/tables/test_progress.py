"""The metrics of a table, and the line of a batch."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from penstock.tables.batches import Batch
from penstock.tables.progress import TableProgress, batch_line


def test_outcomes_lag_and_freshness_are_metrics() -> None:
    registry = CollectorRegistry()
    progress = TableProgress(registry, "orders", clock=lambda: 1000.0)
    batch = Batch(3, 10, 6, 2, 1, 994_500, 998_000, ["price"], {"orders": 2})
    progress(batch)
    progress.saw({"sources": [{"latestOffset": '{"orders":{"0":30}}', "endOffset": '{"orders":{"0":10}}'}]})

    def sample(name: str, **labels: str) -> Any:
        return registry.get_sample_value(f"penstock_table_{name}", {"table": "orders", **labels})

    assert sample("freshness_seconds") == 5.5
    assert sample("lag_messages") == 20
    assert sample("batch_id") == 3
    assert sample("batch_seconds_sum") == 2.0
    outcomes = ("row", "deletion", "dead_letter")
    assert [sample("messages_total", outcome=outcome) for outcome in outcomes] == [6, 2, 1]
    assert progress.summary() == "10 read: 6 rows, 2 deletions, 1 dead letters"
    assert batch_line(batch, progress) == (
        "batch 3: 10 read, 6 rows, 2 deletions, 1 dead letters; freshness 5.5 s; new columns: price"
    )


def test_a_batch_without_messages_says_nothing_of_freshness() -> None:
    progress = TableProgress(CollectorRegistry(), "orders", clock=lambda: 1000.0)
    progress(Batch(0, 0, 0, 0, 0, 0, 998_000, [], {}))
    assert progress.freshness_s is None
    assert "freshness" not in batch_line(Batch(0, 0, 0, 0, 0, 0, 0, [], {}), progress)
