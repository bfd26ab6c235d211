"""The state of GPUs at their newest samples: clocks that are ahead, and GPUs without a known power limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.telemetry.queries.gpus import Only
from penstock.telemetry.queries.idleness import find_idle
from penstock.telemetry.queries.now import find_now
from penstock.telemetry.queries.spans import Span
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.queries.tables import NOW_MS, tables_of
from tests.telemetry.small_fleet import BEGIN_MS

LIMITS = load_thresholds()
TEMPERATURE, POWER, UTIL = 150, 155, 203


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


@pytest.mark.parametrize("only", [Only(), Only(hostname="host-9")])
def test_hot_by_the_power_and_the_temperature_of_others(tmp_path: Path, only: Only) -> None:
    powers = [60.0 + 20.0 * number for number in range(30)]
    fleet = [
        {
            "gpu_id": f"GPU-{number:02}",
            "hostname": f"host-{number // 8}",
            "at": NOW_MS,
            "values": {UTIL: 90.0, POWER: power, TEMPERATURE: 30.0 + 0.05 * power},
        }
        for number, power in enumerate(powers)
    ]
    hot = {"gpu_id": "GPU-hot", "hostname": "host-9", "at": NOW_MS}
    reader = tables_of(tmp_path, *fleet, {**hot, "values": {UTIL: 0.0, POWER: 100.0, TEMPERATURE: 63.0}})
    found = {one.gpu_id: one for one in find_now(reader, LIMITS, only)}
    assert [gpu_id for gpu_id, one in found.items() if "hot" in one.findings] == ["GPU-hot"]
    assert found["GPU-hot"].temperature_expected_c == pytest.approx(35.0)


def test_the_newest_sample_of_any_field_is_the_last_one(tmp_path: Path) -> None:
    """A field that `now` does not look at may be the newest."""
    samples = [{"gpu_id": "GPU-1", "at": NOW_MS - 2_000, "values": {UTIL: 90.0}}]
    samples.append({"gpu_id": "GPU-1", "at": NOW_MS, "values": {101: 3201.0}})
    (one,) = find_now(tables_of(tmp_path, *samples), LIMITS)
    assert one.last_seen.timestamp() * 1000 == NOW_MS
    assert one.age_s == 0.0
