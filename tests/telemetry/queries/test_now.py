"""The state of GPUs at their newest samples: clocks that are ahead, and GPUs without a known power limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.queries.gpus import Only
from penstock.telemetry.queries.idleness import find_idle
from penstock.telemetry.queries.now import find_now
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import Span
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.small_fleet import BEGIN_MS

LIMITS = load_thresholds()
NOW_MS = BEGIN_MS + 600_000
POWER, UTIL = 155, 203


def tables_of(place: Path, *samples: dict[str, Any]) -> TableReader:
    """Tables of one batch that was read at NOW_MS; samples have a GPU, a time and values by field."""
    settings = Settings(LIMITS, shards=2)
    batches = Batches(str(place), str(place / "_state"), settings, clock=lambda: NOW_MS, run_shards=run_here)
    rows: list[dict[str, Any]] = []
    for sample in samples:
        about = {"hostname": "host-1", "workload": "train", "reason": None, "topic": "t", "partition": 0}
        about |= {name: sample[name] for name in ("gpu_id", "hostname", "model", "at") if name in sample}
        for field, value in sample["values"].items():
            rows.append({**about, "field": field, "value": value, "offset": len(rows)})
    batches.process(rows, 0)
    batches.close()
    return TableReader(str(place))


def test_a_clock_that_is_ahead_makes_no_other_gpu_silent(tmp_path: Path) -> None:
    reader = tables_of(
        tmp_path,
        {"gpu_id": "GPU-ahead", "hostname": "host-2", "at": NOW_MS + 200_000, "values": {UTIL: 90.0}},
        {"gpu_id": "GPU-right", "at": NOW_MS - 5_000, "values": {UTIL: 90.0}},
        {"gpu_id": "GPU-gone", "at": NOW_MS - 120_000, "values": {UTIL: 90.0}},
    )
    found = {one.gpu_id: one for one in find_now(reader, LIMITS)}
    states = {gpu_id: one.state for gpu_id, one in found.items()}
    assert states == {"GPU-ahead": "busy", "GPU-right": "busy", "GPU-gone": "silent"}
    assert [found[gpu].age_s for gpu in ("GPU-ahead", "GPU-right", "GPU-gone")] == [0.0, 5.0, 120.0]


@pytest.mark.parametrize("only", [Only(), Only(hostname="host-2")])
def test_busy_in_name_by_the_power_of_peers(tmp_path: Path, only: Only) -> None:
    """No SM_ACTIVE, no power limit, and a model whose limit is not known: busy GPUs of the model tell."""
    fleet = [f"GPU-{number}" for number in range(8)]
    own = {"model": "Brand New GPU", "at": NOW_MS}
    reader = tables_of(
        tmp_path,
        *({"gpu_id": gpu_id, "values": {UTIL: 95.0, POWER: 400.0}, **own} for gpu_id in fleet),
        {"gpu_id": "GPU-fake", "hostname": "host-2", "values": {UTIL: 100.0, POWER: 120.0}, **own},
    )
    evidence = "no SM_ACTIVE; power is 30% of the median of busy peers"
    found = {one.gpu_id: one for one in find_now(reader, LIMITS, only)}
    assert found["GPU-fake"].evidence == f"100 % utilised; {evidence}"
    assert {gpu_id for gpu_id, one in found.items() if one.state == "fake_busy"} == {"GPU-fake"}
    idle = find_idle(reader, Span(BEGIN_MS, NOW_MS + 60_000), LIMITS, only).gpus
    assert [(one.gpu_id, one.evidence) for one in idle] == [("GPU-fake", evidence)]
