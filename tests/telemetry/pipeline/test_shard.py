"""One batch of a shard, from judged messages to its outcome."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.telemetry.pipeline.shard import ROWS, Outcome, ShardState, advance
from tests.telemetry.pipeline.messages import NOW_MS


def row(offset: int, at_s: int = 0, **changes: Any) -> dict[str, Any]:
    """A sample, as `judge` gives it."""
    about = {"hostname": "host-1", "device": "nvidia0", "model": "H200", "job": "job-1", "namespace": "team"}
    place = {"topic": "t", "partition": 0, "offset": offset}
    measured = {"gpu_id": "GPU-1", "field": 150, "at": NOW_MS + at_s * 1000, "value": 40.0}
    return {**about, **place, **measured, "reason": None, **changes}


def advanced(rows: list[dict[str, Any]], state: ShardState | None = None, watermark_ms: int = 0) -> Outcome:
    return advance(state or ShardState(), pa.Table.from_pylist(rows, ROWS), watermark_ms, NOW_MS)


def test_of_two_topics_the_first_in_place_is_taken() -> None:
    rows = [row(1, topic="b", value=1.0), row(2, topic="a", value=2.0), row(0, topic="b", value=3.0)]
    for order in (rows, rows[::-1]):
        outcome = advanced(order)
        assert (outcome.counts.valid, outcome.counts.duplicates) == (1, 2)
        assert outcome.rows["samples"]["value"].to_pylist() == [2.0]
