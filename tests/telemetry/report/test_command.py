"""`penstock telemetry report` as users run it."""

from __future__ import annotations

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


def test_what_is_true_now(tables: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert now("--tables", str(tables)) == 0
    output, errors = capfd.readouterr()
    assert errors == ""
    assert "2025-07-18 22:29:00 UTC: 4 GPUs: 1 idle_occupied, 1 fake_busy, 1 silent, 1 busy" in output
    assert "held by train-1" in output
    assert now("--tables", str(tables), "--pod", "infer-1-0", "--json") == 0
    reported = json.loads(capfd.readouterr().out)
    assert [(one["gpu_id"], one["state"]) for one in reported["items"]] == [("GPU-b0", "fake_busy")]
    assert now("--tables", str(tables), "--workload", "none") == 1
