"""A rollup names the workload of its own time, however long the batch is that closes it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.pipeline.history import still_needed
from penstock.telemetry.pipeline.shard import ROWS, ShardState, advance, close_all
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here

#: the start of an hour
BEGIN_MS = 1_800_000_000_000
WIDTHS_MS = {"rollups_10s": 10_000, "rollups_1m": 60_000, "rollups_1h": 3_600_000}


def sample(offset: int, at_s: float, workload: str | None, gpu_id: str = "GPU-1") -> dict[str, Any]:
    about = {"hostname": "host-1", "device": "nvidia0", "model": "H200", "job": None, "reason": None}
    about |= {"workload": workload, "pod": workload and f"{workload}-pod", "namespace": None}
    place = {"topic": "t", "partition": 0, "offset": offset}
    measured = {"gpu_id": gpu_id, "field": 150, "at": BEGIN_MS + int(at_s * 1000), "value": 1.0}
    return {**about, **place, **measured}


def names(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[str | None, str | None]]:
    """By GPU and second of the window's start: workload and pod."""
    return {
        (row["gpu_id"], (round(row["window_start"].timestamp() * 1000) - BEGIN_MS) // 1000): (
            row["workload"],
            row["pod"],
        )
        for row in rows
    }


def expected(samples: list[dict[str, Any]], width_ms: int) -> dict[tuple[str, int], Any]:
    """What the newest sample of each window says."""
    windows = {}
    for each in sorted(samples, key=lambda each: each["at"]):
        start_ms = each["at"] // width_ms * width_ms
        windows[each["gpu_id"], (start_ms - BEGIN_MS) // 1000] = (each["workload"], each["pod"])
    return windows


def test_one_batch_over_the_end_of_a_job() -> None:
    rows = [
        sample(0, 1, "a"),
        sample(1, 12, "a"),
        sample(2, 17, "b"),
        sample(3, 25, "b"),
        sample(4, 70, None),
    ]
    state = advance(ShardState(), pa.Table.from_pylist(rows, ROWS), 0, BEGIN_MS).state
    assert len(state.history) == 2
    found = close_all(state)
    for table, width_ms in WIDTHS_MS.items():
        assert names(found.rows[table].to_pylist()) == expected(rows, width_ms), table
    assert len(found.state.history) == 0, "no open window needs it"


def test_an_older_sample_of_a_later_batch_changes_nothing() -> None:
    first = advance(ShardState(), pa.Table.from_pylist([sample(0, 20, "b")], ROWS), 0, BEGIN_MS).state
    rows = [sample(1, 15, "a"), sample(2, 21, "b")]
    after = advance(first, pa.Table.from_pylist(rows, ROWS), 0, BEGIN_MS).state
    assert names(close_all(after).rows["rollups_10s"].to_pylist())["GPU-1", 20] == ("b", "b-pod")


def test_history_ends_with_the_windows_before_it() -> None:
    rows = [sample(0, 1, "a"), sample(1, 12, "b"), sample(2, 33, "c")]
    state = advance(ShardState(), pa.Table.from_pylist(rows, ROWS), 0, BEGIN_MS).state
    assert still_needed(state.history, BEGIN_MS + 12_000)["workload"].to_pylist() == ["b"]
    later = advance(state, ROWS.empty_table(), BEGIN_MS + 30_000, BEGIN_MS)
    assert later.state.history["workload"].to_pylist() == ["b"]
    assert names(later.rows["rollups_10s"].to_pylist()) == expected(rows[:2], 10_000)


@pytest.mark.parametrize("seed", range(3))
def test_batches_and_tasks_make_no_difference(seed: int, tmp_path: Path) -> None:
    """GPUs change their workloads at random, some have none. Samples of a batch are out of order."""
    rng = random.Random(seed)
    samples: list[dict[str, Any]] = []
    for gpu in range(6):
        workload: str | None = "start"
        for second in range(0, 240, 4):
            if rng.random() < 0.15:
                workload = rng.choice(["a", "b", None])
            samples.append(sample(0, second + gpu / 10, workload, f"GPU-{gpu}"))
    samples.sort(key=lambda each: each["at"])
    samples = [{**each, "offset": offset} for offset, each in enumerate(samples)]
    edges = [0, *sorted(rng.sample(range(1, len(samples)), 3)), len(samples)]
    for batch_id in range(4):
        batch = samples[edges[batch_id] : edges[batch_id + 1]]
        rng.shuffle(batch)
        settings = Settings(load_thresholds(), shards=rng.choice([1, 2, 5]))
        place = str(tmp_path)
        batches = Batches(
            place,
            f"{place}/_state",
            settings,
            clock=lambda: BEGIN_MS + 600_000,
            run_shards=run_here,
        )
        batches.process(batch, batch_id)
    batches.close()
    for table, width_ms in WIDTHS_MS.items():
        rows = Tables(place).open(table).to_pyarrow_table().to_pylist()
        assert names(rows) == expected(samples, width_ms), f"{table}, seed {seed}"
