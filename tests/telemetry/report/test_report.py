"""Reports: their files, and that they follow from the tables."""

from __future__ import annotations

import csv
import shutil
import struct
from pathlib import Path

import pytest

from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.report import write_report
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.small_fleet import SmallPipeline, make_tables

PNGS = ("heatmap.png", "utilization_power.png", "temperature.png", "alerts.png")


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, which must be one."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "new"
    write_report(TableReader(str(tables)), out)
    return out


@pytest.mark.slow
def test_the_same_data_gives_the_same_files(tables: Path, tmp_path: Path, made: Path) -> None:
    report = write_report(TableReader(str(tables)), tmp_path)
    assert {path.name for path in report.files} == {path.name for path in made.iterdir()}
    for path in report.files:
        assert path.read_bytes() == (made / path.name).read_bytes(), path.name
    assert report.summary == (
        "2025-07-18 20:00 to 2025-07-18 22:29 UTC: 4 GPUs, 53.8 % utilised, 2.65 kWh, "
        "4.9 GPU-hours and 0.98 kWh wasted; 1 critical, 2 with warnings; 5 alerts open"
    )


@pytest.mark.parametrize("name", PNGS)
def test_plots_are_pictures_of_a_sane_size(made: Path, name: str) -> None:
    width, height = size(made / name)
    assert width == 1440
    assert 300 <= height <= 1440
    assert (made / name).stat().st_size > 10_000


@pytest.mark.slow
def test_other_data_gives_other_plots(made: Path, tmp_path: Path) -> None:
    make_tables(tmp_path / "tables", 40)
    write_report(TableReader(str(tmp_path / "tables")), tmp_path / "out")
    for name in PNGS:
        assert (tmp_path / "out" / name).read_bytes() != (made / name).read_bytes()


def test_tables_have_every_row_and_digit(made: Path) -> None:
    hosts = rows(made / "utilization_by_host.csv")
    # The host that leaves most of its GPUs' time unused comes first.
    assert [row["group"] for row in hosts] == ["host-1", "host-2"]
    assert float(hosts[0]["gpu_util_percent"]) == pytest.approx(40.0)
    (idle, fake) = rows(made / "idle.csv")
    assert (idle["gpu_id"], fake["fake_busy"]) == ("GPU-a1", "True")
    alerts = rows(made / "alerts.csv")
    assert [row["state"] for row in alerts] == sorted(row["state"] for row in alerts), "open ones first"
    assert alerts[0]["severity"] == "critical"
    (xid,) = [row for row in alerts if row["rule"] == "xid"]
    assert xid["opened_at"] == "2025-07-18T20:30:10+00:00"
    health = {row["gpu_id"]: row["status"] for row in rows(made / "health.csv")}
    assert health["GPU-b1"] == "critical"


def test_the_page_shows_tables_and_plots(made: Path) -> None:
    page = (made / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# Fleet report\n")
    for name in PNGS:
        assert f"]({name})" in page
    assert "| host-2 | 2 |" in page
    assert "## Allocated and not used" in page


def test_racks_are_a_table_of_their_own(tables: Path, tmp_path: Path, made: Path) -> None:
    assert not (made / "utilization_by_rack.csv").exists()
    hosts = load_thresholds('hosts: {"host-*": {gpus: 2, rack: R1}}')
    write_report(TableReader(str(tables)), tmp_path, thresholds=hosts)
    (rack,) = rows(tmp_path / "utilization_by_rack.csv")
    assert (rack["group"], rack["gpus"]) == ("R1", "4")
    assert {row["hostname"]: row["gpus_missing"] for row in rows(tmp_path / "hosts.csv")} == {
        "host-1": "0",
        "host-2": "1",
    }


def test_nothing_to_report(tmp_path: Path) -> None:
    report = write_report(TableReader(str(tmp_path)), tmp_path / "out")
    assert report.summary == f"no samples in {tmp_path} yet: nothing to report"
    assert (report.files, report.sections) == ([], [])
    assert not (tmp_path / "out").exists()


def test_windows_that_have_not_closed(tmp_path: Path) -> None:
    """Samples alone: tables are empty, plots say nothing, and nothing fails."""
    make_tables(tmp_path / "tables", 3)
    shutil.rmtree(tmp_path / "tables" / "rollups_10s")
    report = write_report(TableReader(str(tmp_path / "tables")), tmp_path / "out")
    assert size(tmp_path / "out" / "heatmap.png")[0] == 1440
    assert "4 GPUs" in report.summary


@pytest.mark.slow
def test_unmeasured_time_is_not_zero_and_a_closing_makes_it_known(tmp_path: Path) -> None:
    pipeline = SmallPipeline(tmp_path / "tables")
    pipeline.run_batches([0, 90])
    open_windows = write_report(TableReader(str(tmp_path / "tables")), tmp_path / "first")
    assert "4 GPUs, utilisation not measured, energy not measured;" in open_windows.summary
    pipeline.close()
    closed = write_report(TableReader(str(tmp_path / "tables")), tmp_path / "second")
    # 89 minutes of 1,000 W, and 59 of 200 W
    assert "4 GPUs, 53.8 % utilised, 1.68 kWh, 0.5 GPU-hours" in closed.summary
    assert rows(tmp_path / "second" / "energy_by_host.csv")[0]["energy_wh"]


def test_more_data_after_a_closing_is_counted_once(tmp_path: Path) -> None:
    place = tmp_path / "tables"
    pipeline = SmallPipeline(place)
    pipeline.run_batches([0, 45, 90])
    pipeline.close()
    pipeline = SmallPipeline(place, minute=90, batch_id=2)
    pipeline.run_batches([90, 120, 150])
    pipeline.close()
    report = write_report(TableReader(str(place)), tmp_path / "out")
    assert "4 GPUs, 53.8 % utilised, 2.68 kWh, 4.1 GPU-hours and 0.95 kWh wasted;" in report.summary
