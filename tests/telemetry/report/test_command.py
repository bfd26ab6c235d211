"""`penstock telemetry report` as users run it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.running import run_here
from tests.telemetry.object_store import BUCKET, SECRET_IN, serving


def run(*arguments: str) -> int:
    return run_here("telemetry", "report", *arguments)


@pytest.mark.slow
def test_the_command(tables: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--tables", str(tables), "--out", str(tmp_path / "out"), "--hours", "1") == 0
    output, errors = capfd.readouterr()
    assert errors == ""
    assert "2025-07-18 21:29 to 2025-07-18 22:29 UTC: 4 GPUs" in output
    assert "Utilisation by host, 2 of 2:" in output
    assert "host-2" in output
    assert f"begin with {tmp_path / 'out' / 'report.md'}" in output


def test_the_command_without_tables(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--tables", str(tmp_path), "--out", str(tmp_path / "out")) == 0
    output, errors = capfd.readouterr()
    assert (output, errors) == (f"no samples in {tmp_path} yet: nothing to report\n", "")


def test_a_file_in_the_way(tables: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run("--tables", str(tables), "--out", str(tmp_path / "file")) == 2
    assert capfd.readouterr().err == f"penstock: --out {tmp_path / 'file'} is a file; name a folder\n"


@pytest.mark.slow
def test_tables_in_an_object_store(
    tables: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options alone have the address of the store and the credentials; the store accepts no others."""
    monkeypatch.setenv(SECRET_IN, "secret")
    with serving(tables.parent) as options:
        reported = [part for option in options for part in ("--storage-option", option)]
        place = f"s3://{BUCKET}/{tables.name}"
        assert run("--tables", place, "--out", str(tmp_path / "out"), *reported) == 0
        output, errors = capfd.readouterr()
        assert errors == ""
        assert "4 GPUs" in output
        assert "host-2" in output
        others = [*reported[:-2], "--storage-option", "AWS_ACCESS_KEY_ID=stranger", *reported[-2:]]
        assert run("--tables", place, "--out", str(tmp_path / "out"), *others) == 1
        assert "AccessDenied" in capfd.readouterr().err
    assert run("--tables", place, "--out", str(tmp_path / "out"), "--storage-option", "region") == 2


def now(*arguments: str) -> int:
    return run_here("telemetry", "now", *arguments)


def test_the_current_state_of_the_fleet(tables: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert now("--tables", str(tables)) == 0
    output, errors = capfd.readouterr()
    assert errors == ""
    assert "2025-07-18 22:29:00 UTC: 4 GPUs: 1 idle_occupied, 1 fake_busy, 1 silent, 1 busy" in output
    assert "held by train-1" in output
    assert now("--tables", str(tables), "--pod", "infer-1-0", "--json") == 0
    reported = json.loads(capfd.readouterr().out)
    assert [(one["gpu_id"], one["state"]) for one in reported["items"]] == [("GPU-b0", "fake_busy")]
    assert now("--tables", str(tables), "--workload", "none") == 1


def test_json_has_all_gpus_and_a_table_has_some(
    tables: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.telemetry.serve._NOW_SHOWN", 1)
    assert now("--tables", str(tables)) == 0
    assert capfd.readouterr().out.count("GPU-") == 1
    assert now("--tables", str(tables), "--json") == 0
    assert len(json.loads(capfd.readouterr().out)["items"]) == 4
    assert now("--tables", str(tables), "--json", "--limit", "2") == 0
    assert len(json.loads(capfd.readouterr().out)["items"]) == 2


def test_prices_give_the_cost_of_waste(
    tables: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("--tables", str(tables), "--out", str(tmp_path), "--price-per-gpu-hour", "3") == 0
    assert "GPU-hours and" in (output := capfd.readouterr().out)
    assert "kWh wasted, a cost of" in output
    with (tmp_path / "idle.csv").open() as file:
        rows = list(csv.DictReader(file))
    costs = [float(row["cost"]) for row in rows]
    assert costs == pytest.approx([float(row["wasted_s"]) / 3600 * 3 for row in rows])
