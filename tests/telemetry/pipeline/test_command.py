"""`penstock telemetry run|backfill`: the settings of a job. Tests with Spark show their effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.cli import client_config
from penstock.cli.telemetry import run as telemetry_run
from tests.cli.running import run_here


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs that would have been run, as `_execute` gets them."""
    reported: list[Any] = []
    monkeypatch.setattr(telemetry_run, "_execute", lambda *all_of_it: reported.append(all_of_it))
    monkeypatch.setattr(telemetry_run, "require_java", lambda: None)
    return reported


def run(*arguments: str) -> int:
    return run_here("telemetry", *arguments)


def test_a_stream_and_a_backfill_are_the_same_job(jobs: list[Any]) -> None:
    options = [
        "--storage-option",
        "AWS_REGION=eu-central-1",
        "--storage-option",
        "AWS_ENDPOINT_URL=http://s3=1",
    ]
    assert run("run", "--tables", "s3://fleet/tables", "--trigger", "2.5", *options) == 0
    assert run("backfill", "--tables", "s3://fleet/tables", *options) == 0
    (streaming, _, every, _, _, log), (batch, _, also, _, _, _) = jobs
    reported = {"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://s3=1"}
    assert streaming.storage_options == batch.storage_options == reported
    assert streaming.query == batch.query == "s3://fleet/tables/_queries/telemetry"
    assert (streaming.until_end, streaming.trigger, every) == (False, "2500 milliseconds", 360)
    # A backfill may have thousands of batches, each with its files.
    assert (batch.until_end, also) == (True, 360)
    assert log.path.name.endswith("spark.log")


def test_a_folder_is_where_the_command_runs(
    jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("backfill", "--tables", "here") == 0
    assert jobs[0][0].tables == str(tmp_path / "here")
    assert jobs[0][0].storage_options == {}
    assert jobs[0][5].path == tmp_path / "here" / "_queries" / "spark.log"


def test_an_option_without_a_value(jobs: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--storage-option", "AWS_REGION") == 2
    assert "--storage-option 'AWS_REGION' is not KEY=VALUE" in capsys.readouterr().err
    assert not jobs


def test_a_job_has_the_security_of_the_command(jobs: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.keystore.location=/me.pem\nacks=1\n")
    try:
        assert run_here(f"--command-config={file}", "telemetry", "backfill", "--tables", "s3://t") == 0
    finally:
        client_config.use(None)
    assert jobs[0][0].security == {"security.protocol": "SSL", "ssl.keystore.location": "/me.pem"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("30", "--keep-samples '30' is not a duration like 60s, 24h or 30d"),
        ("1d", "--keep-samples 1d: queries need samples of two days; take 2d or more"),
    ],
)
def test_a_time_to_keep_samples_that_is_none(
    jobs: list[Any], capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    assert run("run", "--keep-samples", text) == 2
    assert reason in capsys.readouterr().err
    assert not jobs


def test_samples_are_kept_for_ever_unless_a_time_is_named(jobs: list[Any]) -> None:
    assert run("run") == run("backfill", "--keep-samples", "30d") == 0
    assert [job.keep_samples_ms for job, *_ in jobs] == [None, 30 * 86_400_000]
