"""`penstock telemetry demo`, which `make run` is: the whole product, for a few seconds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.telemetry.pipeline.tables import Tables
from tests.cli.running import PENSTOCK, Command

pytestmark = pytest.mark.process

OLD_JAVA = """#!/bin/sh
echo 'openjdk version "11.0.2" 2019-01-15' >&2
"""
#: where everything that was produced has gone
SUM = r"(N) produced = (N) valid \+ (N) dead-lettered \+ (N) duplicates \+ (N) late\n".replace("N", r"[\d,]+")


@pytest.mark.parametrize(
    ("java", "home", "complaint"),
    [
        (None, False, "Spark needs Java 17 or newer, and there is none: install it"),
        (None, True, r"there is none in JAVA_HOME \(.*\): install it"),
        (OLD_JAVA, False, "java is older: install it"),
    ],
)
@pytest.mark.parametrize("command", ["demo", "run", "backfill"])
def test_without_a_java_for_spark_nothing_is_started(
    penstock: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    java: str | None,
    home: bool,
    complaint: str,
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if java is not None:
        (programs / "java").write_text(java)
        (programs / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    options = ["--data", "demo"] if command == "demo" else []
    done = penstock("telemetry", command, *options)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.search(complaint, line)
    assert os.listdir(tmp_path) == ["bin"]


def test_a_folder_that_holds_something_is_left_alone(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = penstock("telemetry", "demo", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty: choose a new folder" in done.stderr


def marked(tmp_path: Path) -> dict[str, str]:
    """An environment that everything in it, and nothing else, can be known by."""
    return {**os.environ, "MARK_OF_THE_TEST": str(tmp_path)}


def left_behind(tmp_path: Path) -> list[str]:
    """Command lines of the processes that still run in that environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"MARK_OF_THE_TEST={tmp_path}".encode() in (path / "environ").read_bytes()
            if is_ours:
                found.append((path / "cmdline").read_text(errors="replace").replace("\0", " "))
        except OSError:  # it has ended meanwhile, or belongs to another user
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_seconds_of_everything_end_with_every_message_accounted_for(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [*PENSTOCK, "telemetry", "demo", "--for", "15", "--data", str(folder), "--hosts", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, env=marked(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    # While it runs there is a line now and then.
    assert re.search(r"brokers 3/3  produced [\d,]+  read [\d,]+  lag", done.stdout)
    reported = re.search(SUM, done.stdout)
    assert reported is not None, done.stdout
    produced, valid, dead, duplicates, late = (int(part.replace(",", "")) for part in reported.groups())
    sent = json.loads((folder / "logs" / "simulator.out").read_text())
    assert produced == sent["acknowledged"] == valid + dead + duplicates + late > 16 * 40 * 10
    assert dead == sent["malformed"] + sent["sentinels"] > 0
    assert duplicates > 0
    # All windows were closed at the end.
    rollups = Tables(str(folder / "tables")).open("rollups_10s").to_pyarrow_table(columns=["count"])
    assert sum(rollups["count"].to_pylist()) == valid
    # Faults of so short a run need not be found; which ones there were is said.
    assert set(re.findall(r"(\w+) +\d+ +\d+ +\d+ +\d+ +", done.stdout)) >= set(sent["faults"])
    assert "Traceback" not in "".join(path.read_text() for path in (folder / "logs").iterdir())
    assert (folder / "faults.jsonl").is_file()
    assert list((folder / "report").glob("*.png"))
    assert not (folder / "brokers").exists()
    assert left_behind(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [*PENSTOCK, "telemetry", "demo", "--data", str(folder), "--hosts", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=marked(tmp_path)
    ) as process:
        assert process.stdout is not None
        # It has something to say once brokers are up; wait until the simulator has sent something as well.
        # A broker that the machine holds up for seconds is missed for a moment.
        while not re.match(r".*brokers 3/3  produced [1-9]", line := process.stdout.readline()):
            assert line
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=600)
    assert process.returncode == 0, rest
    # How much of it the pipeline had read by then is a matter of luck.
    account = re.search(r"^([1-9][\d,]*) produced = (.*)$", rest, re.MULTILINE)
    assert account is not None, rest
    produced, *parts = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", account[0]))
    assert produced == sum(parts), account[0]
    assert left_behind(tmp_path) == []
