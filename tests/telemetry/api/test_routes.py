"""Every route: what it answers about the small fleet, and about none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.api import build_app
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.small_fleet import FIELDS, MINUTES, SmallPipeline

UTIL = "DCGM_FI_DEV_GPU_UTIL"
A0 = "/api/v1/gpus/GPU-a0/telemetry"


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pages(client: TestClient, path: str, **parameters: Any) -> Iterator[list[Any]]:
    """The items of each page."""
    more: dict[str, str] = {}
    while True:
        page = get(client, path, **parameters, **more)
        yield page["items"]
        if page["next_cursor"] is None:
            return
        more = {"cursor": page["next_cursor"]}


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(
        build_app(TableReader(str(tmp_path)), load_thresholds()), base_url="http://127.0.0.1"
    ) as client:
        yield client


def test_gpus(client: TestClient) -> None:
    answer = get(client, "/api/v1/gpus")
    assert [gpu["gpu_id"] for gpu in answer["items"]] == ["GPU-a0", "GPU-a1", "GPU-b0", "GPU-b1"]
    assert answer["items"][0] == {
        "gpu_id": "GPU-a0",
        "hostname": "host-1",
        "device": "nvidia0",
        "pci_bus_id": "00000000:18:00.0",
        "model": "H200",
        "workload": "train-1",
        "job": "train-1",
        "pod": "train-1-0",
        "namespace": "team",
        "last_seen": "2025-07-18T22:29:00Z",
    }
    assert answer["next_cursor"] is None
    assert (answer["start_time"], answer["end_time"]) == (
        "2025-07-17T22:29:00.001000Z",
        "2025-07-18T22:29:00.001000Z",
    )


def test_gpus_of_a_time_window(client: TestClient) -> None:
    answer = get(client, "/api/v1/gpus", start_time="2025-07-18T21:00:00Z")
    assert [gpu["gpu_id"] for gpu in answer["items"]] == ["GPU-a0", "GPU-a1", "GPU-b0"]


def test_pages_of_gpus(client: TestClient) -> None:
    found = [[gpu["gpu_id"] for gpu in page] for page in pages(client, "/api/v1/gpus", limit=3)]
    assert found == [["GPU-a0", "GPU-a1", "GPU-b0"], ["GPU-b1"]]


def test_telemetry_of_a_time_window_is_half_open(client: TestClient) -> None:
    window = {"start_time": "2025-07-18T20:10:00Z", "end_time": "2025-07-18T22:12:00+02:00"}
    answer = get(client, A0, metric=UTIL, **window)
    assert answer["resolution"] == "raw"
    assert answer["gpu_id"] == "GPU-a0"
    assert [row["timestamp"] for row in answer["items"]] == [
        f"2025-07-18T20:{minute}:00Z" for minute in (10, 11)
    ]
    assert answer["items"][0] == {
        "timestamp": "2025-07-18T20:10:00Z",
        "metric": UTIL,
        "unit": "%",
        "value": 80.0,
        "workload": "train-1",
        "job": "train-1",
        "pod": "train-1-0",
    }


def test_a_moment_within_a_millisecond_of_a_sample_is_another(client: TestClient) -> None:
    window = {"start_time": "2025-07-18T20:10:00.000001Z", "end_time": "2025-07-18T20:11:59.999999Z"}
    answer = get(client, A0, metric=UTIL, **window)
    assert [row["timestamp"] for row in answer["items"]] == ["2025-07-18T20:11:00Z"]


def test_the_whole_series_in_windows_that_fit(client: TestClient) -> None:
    answer = get(client, A0, metric=UTIL)
    assert answer["resolution"] == "10s"
    assert (answer["start_time"], answer["end_time"]) == (
        "2025-07-18T20:00:00Z",
        "2025-07-18T22:29:00.001000Z",
    )
    row = answer["items"][0]
    assert (row["timestamp"], row["count"], row["mean"], row["increase"]) == (
        "2025-07-18T20:00:00Z",
        1,
        80.0,
        None,
    )
    assert row["p50"] == pytest.approx(80.0, rel=0.01)


def test_requested_windows(client: TestClient) -> None:
    answer = get(client, A0, metric="DCGM_FI_DEV_GPU_TEMP_CELSIUS", resolution="1h")
    assert [(row["metric"], row["mean"]) for row in answer["items"]] == [("DCGM_FI_DEV_GPU_TEMP", 60.0)] * 2


def test_several_metrics_by_name_and_number(client: TestClient) -> None:
    end = "2025-07-18T20:00:00.001Z"
    answer = get(client, A0, metric=[UTIL, "150"], end_time=end)
    assert [row["metric"] for row in answer["items"]] == ["DCGM_FI_DEV_GPU_TEMP", UTIL]
    assert len(get(client, A0, end_time=end)["items"]) == len(FIELDS)


def test_a_known_gpu_may_have_no_samples(client: TestClient) -> None:
    silent = "/api/v1/gpus/GPU-b1/telemetry"
    assert get(client, silent, start_time="2025-07-18T22:00:00Z")["items"] == []
    assert get(client, silent, metric="DCGM_FI_DEV_FB_USED")["items"] == []


def test_an_unknown_gpu(client: TestClient) -> None:
    answer = client.get("/api/v1/gpus/GPU-x/telemetry")
    assert answer.status_code == 404
    assert "GPU-x" in answer.json()["detail"]


@settings(max_examples=8, deadline=None)
@given(limit=st.integers(60, 600), resolution=st.sampled_from([None, "raw", "10s", "1h"]))
def test_pages_together_are_everything_once(client: TestClient, limit: int, resolution: str | None) -> None:
    requested = {} if resolution is None else {"resolution": resolution}
    whole = get(client, A0, limit=10_000, **requested)["items"]
    found = list(pages(client, A0, limit=limit, **requested))
    assert [row for page in found for row in page] == whole
    assert all(len(page) == limit for page in found[:-1])
    assert len({(row["timestamp"], row["metric"]) for row in whole}) == len(whole)


def test_pages_stay_the_same_while_samples_arrive(tmp_path: Path) -> None:
    """Open ends stay where they were, and so does the width of windows."""
    pipeline = SmallPipeline(tmp_path)
    pipeline.run(55)
    with TestClient(
        build_app(TableReader(str(tmp_path), max_age_s=0.0), load_thresholds()), base_url="http://127.0.0.1"
    ) as client:
        whole = get(client, A0, metric=UTIL)["items"]
        first = get(client, A0, metric=UTIL, limit=30)
        assert first["resolution"] == "raw"
        pipeline.run(MINUTES)
        assert get(client, A0, metric=UTIL)["resolution"] == "10s"
        second = get(client, A0, metric=UTIL, limit=30, cursor=first["next_cursor"])
        assert second["resolution"] == "raw"
        assert first["items"] + second["items"] == whole
        assert second["next_cursor"] is None


def test_utilization(client: TestClient) -> None:
    window = {"start_time": "2025-07-18T20:00:00Z", "end_time": "2025-07-18T21:00:00Z"}
    answer = get(client, "/api/v1/fleet/utilization", **window)
    assert (answer["by"], answer["total"]) == ("host", 2)
    assert answer["items"][0]["group"] == "host-2"
    assert answer["items"][0]["gpus"] == 2
    assert answer["items"][0]["gpu_util_percent"] == pytest.approx(67.5)
    cut = get(client, "/api/v1/fleet/utilization", by="gpu", limit=1, **window)
    assert (len(cut["items"]), cut["total"], cut["items"][0]["group"]) == (1, 4, "GPU-b0")


def test_the_last_day_is_the_default_span(client: TestClient) -> None:
    answer = get(client, "/api/v1/fleet/utilization", by="gpu")
    assert (answer["start_time"], answer["end_time"]) == (
        "2025-07-17T22:29:00.001000Z",
        "2025-07-18T22:29:00.001000Z",
    )
    assert len(answer["items"]) == 4
    hour = get(client, "/api/v1/fleet/utilization", by="gpu", start_time="2025-07-18T21:29:00Z")
    assert [one["group"] for one in hour["items"]] == ["GPU-b0", "GPU-a0", "GPU-a1"]


def test_idle(client: TestClient) -> None:
    window = {"start_time": "2025-07-18T20:00:00Z", "end_time": "2025-07-18T21:00:00Z"}
    answer = get(client, "/api/v1/fleet/idle", **window)
    assert answer["idle_gpu_hours"] == pytest.approx(1.0)
    # GPU-b0 is busy in name only: its hour is wasted, too.
    assert answer["wasted_gpu_hours"] == pytest.approx(2.0)
    assert answer["wasted_cost"] is None
    assert [(one["gpu_id"], one["fake_busy"]) for one in answer["items"]] == [
        ("GPU-a1", False),
        ("GPU-b0", True),
    ]


def test_energy(client: TestClient) -> None:
    window = {"start_time": "2025-07-18T20:00:00Z", "end_time": "2025-07-18T21:00:00Z"}
    answer = get(client, "/api/v1/fleet/energy", by="model", **window)
    assert answer["energy_wh"] == pytest.approx(1200 * 59 / 60)
    assert [one["group"] for one in answer["items"]] == ["H200", "H100"]
    assert answer["items"][1]["gpu_power_mean_w"] == pytest.approx(200.0)


def test_racks_and_the_gpus_that_hosts_should_have(tables: Path) -> None:
    limits = load_thresholds("hosts: {host-1: {gpus: 2, rack: R1}, host-2: {gpus: 4, rack: R2}}")
    app = build_app(TableReader(str(tables)), limits)
    with TestClient(app, base_url="http://localhost") as racked:
        found = get(racked, "/api/v1/fleet/hosts")
        assert (found["gpus"], found["gpus_missing"], found["total"]) == (3, 3, 2)
        assert found["items"][0]["hostname"] == "host-2"
        assert found["items"][0]["silent"] == ["GPU-b1 nvidia0 00000000:18:00.0"]
        (only,) = get(racked, "/api/v1/fleet/hosts", rack="R1")["items"]
        assert (only["hostname"], only["gpus_expected"], only["gpus_missing"]) == ("host-1", 2, 0)
        for path, value in (("utilization", "gpus"), ("energy", "gpus"), ("idle", "gpus")):
            groups = get(racked, f"/api/v1/fleet/{path}", by="rack")["items"]
            hosts = get(racked, f"/api/v1/fleet/{path}", by="host")["items"]
            # Each host has a rack of its own here.
            assert [one[value] for one in groups] == [one[value] for one in hosts], path
            assert {one["group"] for one in groups} == {"R1", "R2"}, path


def test_health(client: TestClient) -> None:
    answer = get(client, "/api/v1/fleet/health")
    assert answer["gpus"] == {"critical": 1, "warning": 2, "ok": 1}
    assert (answer["items"][0]["gpu_id"], answer["items"][0]["status"]) == ("GPU-b1", "critical")
    healthy = get(client, "/api/v1/fleet/health", status="ok")
    assert [one["gpu_id"] for one in healthy["items"]] == ["GPU-a0"]
    assert healthy["total"] == 1


def test_alerts(client: TestClient) -> None:
    everything = get(client, "/api/v1/alerts")["items"]
    (xid,) = get(client, "/api/v1/alerts", rule="xid")["items"]
    assert xid in everything
    assert (xid["subject"], xid["state"], xid["measure"]) == ("GPU-a0", "resolved", 79.0)
    assert get(client, "/api/v1/alerts", state="resolved", subject="GPU-a0")["items"] == [xid]
    critical = get(client, "/api/v1/alerts", severity="critical", hostname="host-2", state="open")["items"]
    assert {one["rule"] for one in critical} >= {"silent"}
    assert all(one["severity"] == "critical" and one["hostname"] == "host-2" for one in critical)


def test_alerts_of_a_time_window(client: TestClient) -> None:
    before = get(client, "/api/v1/alerts", rule="xid", end_time="2025-07-18T20:30:00Z")
    assert before["items"] == []
    during = {"start_time": "2025-07-18T20:40:00Z", "end_time": "2025-07-18T20:41:00Z"}
    assert len(get(client, "/api/v1/alerts", rule="xid", **during)["items"]) == 1
    assert get(client, "/api/v1/alerts", rule="xid", start_time="2025-07-18T22:00:00Z")["items"] == []


def test_pages_of_alerts(client: TestClient) -> None:
    whole = get(client, "/api/v1/alerts")["items"]
    assert len(whole) >= 5
    found = list(pages(client, "/api/v1/alerts", limit=2))
    assert [one for page in found for one in page] == whole
    assert max(map(len, found)) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/gpus",
        "/fleet/utilization",
        "/fleet/idle",
        "/fleet/energy",
        "/fleet/health",
        "/fleet/hosts",
        "/alerts",
    ],
)
def test_without_tables_there_is_nothing(nothing: TestClient, path: str) -> None:
    assert get(nothing, f"/api/v1{path}")["items"] == []


def test_without_tables_no_gpu_is_known(nothing: TestClient) -> None:
    assert nothing.get(A0).status_code == 404


@pytest.mark.parametrize("path", ["/gpus", "/fleet/idle", "/fleet/health", "/fleet/now", "/alerts"])
@pytest.mark.parametrize(
    ("requested", "hosts"),
    [
        ({"hostname": "host-2"}, {"host-2"}),
        ({"workload": "train-1"}, {"host-1"}),
        ({"pod": "infer-1-0"}, {"host-2"}),
        ({"pod": "infer-1-0", "hostname": "host-1"}, set()),
    ],
)
def test_questions_about_some_gpus(
    client: TestClient, path: str, requested: dict[str, str], hosts: set[str]
) -> None:
    assert {one["hostname"] for one in get(client, f"/api/v1{path}", **requested)["items"]} == hosts


def test_the_current_state_of_the_fleet(client: TestClient) -> None:
    answer = get(client, "/api/v1/fleet/now")
    assert answer["newest_sample"] == "2025-07-18T22:29:00Z"
    assert answer["gpus"] == {
        "idle_occupied": 1,
        "fake_busy": 1,
        "silent": 1,
        "unknown": 0,
        "busy": 1,
        "idle": 0,
    }
    assert [one["state"] for one in answer["items"]] == ["idle_occupied", "fake_busy", "silent", "busy"]
    assert [one["gpu_id"] for one in get(client, "/api/v1/fleet/now", state="silent")["items"]] == ["GPU-b1"]


def test_idle_by_workload(client: TestClient) -> None:
    answer = get(client, "/api/v1/fleet/idle", by="workload")
    assert (answer["by"], [one["group"] for one in answer["items"]]) == ("workload", ["train-1", "infer-1"])


def test_energy_is_that_of_the_report(client: TestClient, reader: TableReader, tmp_path: Path) -> None:
    from penstock.telemetry.report import write_report

    summary = write_report(reader, tmp_path).summary
    assert f"{get(client, '/api/v1/fleet/energy')['energy_wh'] / 1000:.2f} kWh" in summary
