"""The fleet's numbers, which are known of the small one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.telemetry.queries import fleet
from penstock.telemetry.queries.alerts import Incident, find_incidents
from penstock.telemetry.queries.gpus import Only, find_gpus, latest
from penstock.telemetry.queries.idleness import Prices, find_idle, group_idle
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, ROLLUPS, Span
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.queries.tables import tables_of
from tests.telemetry.small_fleet import BEGIN_MS

FIRST_HOUR = Span(BEGIN_MS, BEGIN_MS + HOUR_MS)
#: not a whole number of windows of any width but the narrowest
ODD = Span(BEGIN_MS + 10 * 60_000 - 10_000, BEGIN_MS + 130 * 60_000 - 20_000)
LIMITS = load_thresholds()


def test_utilization_by_host(reader: TableReader) -> None:
    found = {one.group: one for one in fleet.utilization(fleet.totals(reader, FIRST_HOUR), "host")}
    assert list(found) == ["host-2", "host-1"]
    assert found["host-1"].gpus == 2
    assert found["host-1"].gpu_util_percent == pytest.approx(40.0)
    assert found["host-1"].sm_active_share == pytest.approx(0.35)
    assert found["host-2"].gpu_util_percent == pytest.approx(67.5)


@pytest.mark.parametrize(
    ("by", "busy"),
    [
        ("gpu", {"GPU-a0": 80.0, "GPU-a1": 0.0, "GPU-b0": 95.0, "GPU-b1": 40.0}),
        ("model", {"H200": 175 / 3, "H100": 40.0}),
        ("job", {"train-1": 40.0, "infer-1": 95.0, None: 40.0}),
        ("namespace", {"team": 215 / 4}),
    ],
)
def test_utilization_by_other_groups(reader: TableReader, by: str, busy: dict[str | None, float]) -> None:
    found = {
        one.group: one.gpu_util_percent for one in fleet.utilization(fleet.totals(reader, FIRST_HOUR), by)
    }
    assert found == pytest.approx(busy)


def test_samples_weigh_and_not_gpus(reader: TableReader) -> None:
    """A GPU that was silent for the second of two hours counts half."""
    found = fleet.utilization(fleet.totals(reader, Span(BEGIN_MS, BEGIN_MS + 2 * HOUR_MS)), "host")
    assert {one.group: one.gpu_util_percent for one in found}["host-2"] == pytest.approx((2 * 95 + 40) / 3)


@pytest.mark.parametrize("span", [FIRST_HOUR, ODD, Span(BEGIN_MS, BEGIN_MS + 2 * HOUR_MS)])
def test_wide_windows_agree_with_narrow_ones(reader: TableReader, span: Span) -> None:
    order = [("gpu_id", "ascending"), ("field", "ascending")]
    exact = ["gpu_id", "field", "samples", "weighted", "max", "increase", "covered_s"]
    wide = fleet.totals(reader, span).sort_by(order).select(exact).to_pylist()
    narrow = fleet.totals(reader, span, levels=ROLLUPS[2:]).sort_by(order).select(exact).to_pylist()
    assert wide == [pytest.approx(row) for row in narrow]
    assert len(wide) == 24


def test_energy(reader: TableReader) -> None:
    (team,) = fleet.energy(fleet.totals(reader, FIRST_HOUR), "namespace")
    # Four GPUs for the 59 minutes from the first sample to the last one of the hour.
    assert team.energy_wh == pytest.approx(1200 * 59 / 60)
    assert team.gpu_power_mean_w == pytest.approx(300.0)
    assert team.gpus == 4
    by_gpu = fleet.energy(fleet.totals(reader, FIRST_HOUR), "gpu")
    assert [one.group for one in by_gpu] == ["GPU-a0", "GPU-b0", "GPU-b1", "GPU-a1"]


def test_idle_and_fake_busy(reader: TableReader) -> None:
    idle, fake = find_idle(reader, FIRST_HOUR, LIMITS).gpus
    assert (idle.gpu_id, idle.workload, idle.observed_s, idle.idle_s, idle.fake_busy) == (
        "GPU-a1",
        "train-1",
        3600.0,
        3600.0,
        False,
    )
    assert (fake.gpu_id, fake.idle_s, fake.fake_busy) == ("GPU-b0", 0.0, True)
    assert fake.sm_active_share == pytest.approx(0.1)


def test_the_first_minute_of_the_samples_does_not_count_whole(tmp_path: Path) -> None:
    """A GPU that is heard from ten seconds before a full minute on was idle for ten seconds of it."""
    begin_ms = BEGIN_MS + 50_000
    idle = [
        {"gpu_id": "GPU-1", "at": begin_ms + 10_000 * step, "values": {203: 0.0, 155: 90.0}}
        for step in range(13)
    ]
    found = find_idle(tables_of(tmp_path, *idle), Span(BEGIN_MS, BEGIN_MS + HOUR_MS), LIMITS)
    (one,) = found.gpus
    assert (one.idle_s, one.observed_s) == (130.0, 130.0)
    assert one.wasted_wh == pytest.approx(90.0 * 130 / 3600)


def test_waste_includes_gpus_that_are_busy_in_name_only(reader: TableReader) -> None:
    """An hour each: idle at 100 W, and fake at 300 W, whose 59 minutes between samples are measured."""
    found = find_idle(reader, FIRST_HOUR, LIMITS, prices=Prices(per_gpu_hour=2.0, per_kwh=0.5))
    idle, fake = found.gpus
    assert (found.gpu_hours, found.wasted_gpu_hours) == (1.0, 2.0)
    assert idle.wasted_wh == pytest.approx(100.0)
    assert fake.wasted_wh == pytest.approx(300.0 * 59 / 60)
    assert fake.cost == pytest.approx(2.0 + 0.295 * 0.5)
    assert found.wasted_cost == pytest.approx(4.0 + 0.395 * 0.5)
    by_host = {one.group: one for one in group_idle(found.gpus, "host")}
    assert by_host["host-2"].wasted_gpu_hours == 1.0
    assert by_host["host-2"].cost == fake.cost
    assert find_idle(reader, FIRST_HOUR, LIMITS).wasted_cost is None


def test_hours_count_as_idle_in_long_spans(reader: TableReader) -> None:
    idle, _ = find_idle(reader, Span(BEGIN_MS - DAY_MS, BEGIN_MS + 2 * HOUR_MS), LIMITS).gpus
    assert (idle.observed_s, idle.idle_s) == (7200.0, 7200.0)


def test_other_thresholds_find_others(reader: TableReader) -> None:
    limits = load_thresholds("idle_occupied: {gpu_util_max_percent: 85}")
    assert [one.gpu_id for one in find_idle(reader, FIRST_HOUR, limits).gpus] == [
        "GPU-a0",
        "GPU-a1",
        "GPU-b0",
    ]


def states(reader: TableReader, span: Span, incidents: list[Incident] | None = None) -> list[fleet.Health]:
    alerts = find_incidents(reader) if incidents is None else incidents
    return fleet.health(fleet.totals(reader, span), find_gpus(reader, span), alerts)


def test_health(reader: TableReader) -> None:
    found = {one.gpu_id: one for one in states(reader, latest(reader))}
    b1 = found["GPU-b1"]
    assert b1.status == "critical"
    assert "silent" in b1.open_alerts
    assert b1.thermal_throttled_share == pytest.approx(0.1)
    assert b1.temperature_max_c == 70.0
    assert (found["GPU-a1"].status, found["GPU-a1"].open_alerts) == ("warning", ["idle_occupied"])
    assert (found["GPU-a0"].status, found["GPU-a0"].open_alerts) == ("ok", [])
    assert next(iter(found)) == "GPU-b1"
    assert list(found)[-1] == "GPU-a0"
    assert fleet.count_by_status(found.values()) == {"critical": 1, "warning": 2, "ok": 1}


def test_a_silent_gpu_is_not_healthy(reader: TableReader) -> None:
    found = {one.gpu_id: one for one in states(reader, latest(reader, HOUR_MS))}
    assert found["GPU-b1"].status == "critical"
    assert found["GPU-b1"].hostname == "host-2"
    assert found["GPU-b1"].temperature_max_c is None


def test_an_alert_about_a_host_is_one_about_its_gpus(reader: TableReader) -> None:
    (silent,) = [one for one in find_incidents(reader) if one.rule == "silent"]
    host = replace(silent, subject="host-1", hostname="host-1")
    found = {one.gpu_id: one.status for one in states(reader, FIRST_HOUR, [host])}
    assert found == {"GPU-a0": "critical", "GPU-a1": "critical", "GPU-b0": "ok", "GPU-b1": "ok"}


def test_nothing_is_known_of_an_empty_place(tmp_path: Path) -> None:
    reader = TableReader(str(tmp_path))
    empty = latest(reader)
    assert fleet.utilization(fleet.totals(reader, empty), "host") == []
    assert fleet.energy(fleet.totals(reader, empty), "host") == []
    assert (find_idle(reader, empty, LIMITS).gpus, find_idle(reader, empty, LIMITS).gpu_hours) == (
        [],
        None,
    )
    assert states(reader, empty) == []


def test_idle_by_group(reader: TableReader) -> None:
    found = group_idle(find_idle(reader, FIRST_HOUR, LIMITS).gpus, "workload")
    assert [(one.group, one.gpus, one.idle_gpu_hours, one.fake_busy_gpus) for one in found] == [
        ("train-1", 1, 1.0, 0),
        ("infer-1", 1, 0.0, 1),
    ]


def test_questions_about_some_gpus(reader: TableReader) -> None:
    def hosts(only: Only) -> list[str | None]:
        return [one.group for one in fleet.utilization(fleet.totals(reader, FIRST_HOUR, only=only), "host")]

    assert hosts(Only(hostname="host-2")) == ["host-2"]
    assert hosts(Only(workload="train-1")) == hosts(Only(pod="train-1-0")) == ["host-1"]
    assert hosts(Only(hostname="host-2", pod="train-1-0")) == []
    assert [one.gpu_id for one in find_idle(reader, FIRST_HOUR, LIMITS, Only(pod="infer-1-0")).gpus] == [
        "GPU-b0"
    ]
