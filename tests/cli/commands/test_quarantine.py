"""`penstock log quarantine`: what was set aside can be seen, brought back and deleted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.cluster.overview_output import print_overview
from penstock.cli.direct import DirectLine
from penstock.storage.directory import DataDirectory
from penstock.testing import broker
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, append, create_topic, delete_topic, read_all
from tests.cli.running import run

pytestmark = pytest.mark.process


def quarantine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("log", "quarantine", *arguments)


def listed(data: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(quarantine("list", "--data", str(data), "--json").stdout)
    return rows


def refused(*arguments: str) -> str:
    """The one line that a command fails with."""
    failed = quarantine(*arguments)
    assert failed.returncode == 1 and failed.stdout == ""
    (line,) = failed.stderr.splitlines()
    return line


@pytest.fixture
def stray(tmp_path: Path) -> Topic:
    """A topic whose partition 1 was set aside while the broker was stopped."""
    from penstock.broker.base.system_ports import OsFiles, SystemClock, SystemRng

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "t", partitions=2)
        append(client, topic, b"zero")
        append(client, topic, b"one", partition=1)
    directory = DataDirectory.open(
        OsFiles(), str(tmp_path), cluster_id=None, node_id=1, rng=SystemRng(), clock=SystemClock()
    )
    directory.quarantine_partition("t", 1, "a test")
    directory.close(clean=False)
    return topic


def test_an_empty_quarantine_is_reported(tmp_path: Path) -> None:
    with broker(data=tmp_path):
        pass
    assert listed(tmp_path) == []
    assert "is empty" in quarantine("list", "--data", str(tmp_path)).stderr


def test_list_shows_quarantined_logs(tmp_path: Path, stray: Topic) -> None:
    (row,) = listed(tmp_path)
    assert (row["entry"], row["topic"], row["partitions"], row["reason"]) == ("t-1.1", "t", [1], "a test")
    assert row["path"] == str(tmp_path / "quarantine" / "t-1.1")
    assert "t-1.1" in quarantine("list", "--data", str(tmp_path.parent)).stdout


def test_a_restored_log_has_its_records(tmp_path: Path, stray: Topic) -> None:
    done = quarantine("restore", "t-1.1", "--data", str(tmp_path))
    assert done.stdout == f"restored {tmp_path}/topics/t/partition-1\n"
    assert listed(tmp_path) == []
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, stray, partition=1)] == [b"one"]


def test_a_restore_replaces_an_existing_log_only_on_request(tmp_path: Path, stray: Topic) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        append(client, stray, b"new", partition=1)
        assert "is in use by a broker: stop it first" in refused("restore", "t-1.1", "--data", str(tmp_path))
    assert "--replace" in refused("restore", "t-1.1", "--data", str(tmp_path))
    done = quarantine("restore", "t-1.1", "--data", str(tmp_path), "--replace", "--json")
    assert json.loads(done.stdout)["outcome"] == "restored"
    assert [row["reason"] for row in listed(tmp_path)] == ["t-1.1 was restored in its place"]
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, stray, partition=1)] == [b"one"]


def test_a_restore_into_a_topic_that_was_created_again_takes_its_id(tmp_path: Path, stray: Topic) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        delete_topic(client, stray)
        again = create_topic(client, "t", partitions=2)
    assert quarantine("restore", "t-1.1", "--data", str(tmp_path), "--replace").returncode == 0
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert [r.value for r in read_all(client, again, partition=1)] == [b"one"]
    assert [row["reason"] for row in listed(tmp_path)] == ["t-1.1 was restored in its place"]


def test_a_deleted_entry_is_gone(tmp_path: Path, stray: Topic) -> None:
    assert quarantine("delete", "t-1.1", "--data", str(tmp_path)).stdout.startswith("deleted ")
    assert listed(tmp_path) == []
    assert not list((tmp_path / "quarantine").iterdir())


def test_mistakes_are_reported_in_one_line(tmp_path: Path, stray: Topic) -> None:
    for command in ("restore", "delete"):
        assert "no quarantine entry 'x'" in refused(command, "x", "--data", str(tmp_path))
    assert "is not a directory" in refused("list", "--data", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "contains no data directory" in refused("list", "--data", str(tmp_path / "empty"))


def test_the_status_of_a_cluster_warns_of_quarantined_logs(
    tmp_path: Path, stray: Topic, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = listed(tmp_path)
    with broker(data=tmp_path) as running, DirectLine(running.bootstrap, 60) as line:
        overview = cluster_overview(line)
    assert [each["quarantined_bytes"] for each in overview["brokers"]] == [row["bytes"]]
    print_overview(overview)
    assert f"broker 1: {row['bytes']} bytes of logs are in quarantine" in capsys.readouterr().out
