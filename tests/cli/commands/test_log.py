"""`penstock log`: what a broker left on disk."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import PENSTOCK, WAIT_S, run, running_broker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that took two messages and was stopped."""
    path = tmp_path_factory.mktemp("data")
    with running_broker("--data", str(path)) as (process, address):
        for arguments in (("topic", "create", "t"), ("produce", "t", "-K", ":", "-H", "h=1")):
            assert run(*arguments, input="k:v\nl:é\n", bootstrap=address).returncode == 0
        process.terminate()
        assert process.wait(WAIT_S) == 0
    return path


@pytest.fixture
def partition(data: Path) -> Path:
    return data / "topics" / "t" / "partition-0"


def log(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("log", *arguments)


def test_dump_shows_batches_and_records(partition: Path) -> None:
    segment = str(partition / "00000000000000000000.log")
    assert log("dump", segment).stdout.startswith("position=0 base_offset=0 last_offset=1 count=2 ")
    batch, first, second = map(json.loads, log("dump", segment, "--records", "--json").stdout.splitlines())
    assert (batch["count"], batch["compression"]) == (2, "none")
    assert (first["key"], first["value"], first["headers"]) == ("k", "v", [["h", "1"]])
    assert (second["offset"], second["value"]) == (1, "é")


def test_dump_shows_indexes(partition: Path) -> None:
    (entry,) = map(
        json.loads,
        log("dump", str(partition / "00000000000000000000.timeindex"), "--json").stdout.splitlines(),
    )
    assert entry["offset"] == 1


def test_dump_names_the_file_and_the_partition(data: Path, partition: Path) -> None:
    name = "00000000000000000000.log"
    for shown in (log("dump", str(data)).stdout, log("dump", str(data), "--json").stdout):
        named = [line for line in shown.splitlines() if "file" in line]
        assert any(f"topics/t/partition-0/{name}" in line for line in named)
        assert not any(str(data) in line for line in named)
    assert f"file={name}\n" in log("dump", str(partition)).stdout
    both = log("dump", str(partition / name), str(data)).stdout
    assert both.startswith(f"file={partition / name}\nposition=0 ")
    assert f"file={partition / name}\n" in both.partition("\n")[2]


def test_verify_shows_its_progress_on_a_terminal(partition: Path) -> None:
    terminal, stderr = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        try:
            command = [*PENSTOCK, "log", "verify", str(partition / "00000000000000000000.log")]
            environment = {**os.environ, "TERM": "xterm"}
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=stderr, env=environment, timeout=WAIT_S
            )
            assert done.returncode == 0
            assert b"100%" in screen.read(65536)
        finally:
            os.close(stderr)


def test_verify_takes_files_and_whole_data_directories(data: Path, partition: Path) -> None:
    done = log("verify", str(data), "--json")
    assert done.returncode == 0
    reports = {Path(report["file"]): report for report in json.loads(done.stdout)}
    assert reports[partition] == {
        "file": str(partition),
        "ok": True,
        "batches": 1,
        "records": 2,
        "missing": 0,
        "problems": [],
    }
    assert len(reports) == 2  # the cluster's metadata is a log like any other


def test_verify_finds_a_flipped_bit(partition: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "00000000000000000000.log"
    content = bytearray((partition / damaged.name).read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    done = log("verify", str(damaged))
    assert done.returncode == 1
    assert "damaged" in done.stdout


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_file_that_is_no_log_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "nothing"):
        done = log(command, str(path))
        assert (done.returncode, done.stdout) == (1, "")
        assert str(path) in done.stderr
