"""One batch of a shard, from judged messages to its outcome."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.telemetry.pipeline.shard import ROWS, Outcome, ShardState, advance
from tests.telemetry.pipeline.messages import NOW_MS


def row(offset: int, at_s: int = 0, **changes: Any) -> dict[str, Any]:
    """A sample, as `judge` gives it."""
    about: dict[str, str | None] = {
        "hostname": "host-1",
        "device": "nvidia0",
        "model": "H200",
        "job": "job-1",
    }
    about |= {"workload": "job-1", "pod": None, "namespace": "team"}
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


def test_a_gpu_of_an_ended_job_has_no_job() -> None:
    begun = advanced([row(0, hostname=None), row(1, at_s=1)]).state
    ended = {"job": None, "namespace": None}
    # What says nothing of its host does not take it away, and what is older changes nothing.
    for rows in ([row(2, at_s=2, **ended, hostname=None)], [row(2, at_s=2, **ended), row(3, field=203)]):
        after = advanced(rows, begun).state
        (gpu,) = after.gpus.to_pylist()
        assert (gpu["hostname"], gpu["model"], gpu["job"], gpu["namespace"]) == ("host-1", "H200", None, None)
        (gpu,) = advanced([row(4, at_s=3, job="job-2")], after).state.gpus.to_pylist()
        assert gpu["job"] == "job-2"
    (gpu,) = advanced([row(2, at_s=-1, **ended)], begun).state.gpus.to_pylist()
    assert gpu["job"] == "job-1"
