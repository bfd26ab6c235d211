"""A cluster of real processes, as its commands start, show, change and stop it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock.cli.alteration import alter_common, broker_resource, config_entries, topic_resource
from penstock.cli.cluster import membership, moves
from penstock.cli.cluster.broker_home import BrokerHome, bootstrap_of, homes_in
from penstock.cli.cluster.moves import read_image
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.cluster.processes import send_signal, spawn
from penstock.cli.cluster.starting import stop_again
from penstock.cli.connection import Cluster
from penstock.cli.direct import DirectLine
from penstock.metadata.image import ClusterImage
from tests.cli.running import consecutive_free_ports, run_here
from tests.waiting import eventually

pytestmark = pytest.mark.process

Result: TypeAlias = subprocess.CompletedProcess[str]
Cli: TypeAlias = Callable[..., Result]

#: what it says of one broker, or of another cluster, is not for this one
CONFIG = """
broker: {id: 7, host: "0.0.0.0", port: 1, data_dir: /nowhere}
cluster: {bootstrap_servers: ["broker-1:9092", "broker-2:9092"]}
storage: {segment_size: 16MB}
replication: {min_insync_replicas: 2}
topics:
  gpu: {partitions: 8, retention_time: 30d}
"""
HOW = ("--brokers", "3", "--port", "0", "--racks", "a,b,c")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster of three that the tests of this file share, each leaving it whole."""
    path = tmp_path_factory.mktemp("cluster")
    config = path / "config.yaml"
    config.write_text(CONFIG)
    try:
        assert _run(["cluster", "start", "--data", str(path / "data"), *HOW, "--config", str(config)]) == 0
        yield path / "data"
    finally:
        stop_again(homes_in(path / "data"))


def _run(arguments: list[str]) -> int:
    return run_here(*arguments)


@pytest.fixture
def cli(directory: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """`penstock … --data DIR`, in this process."""

    def command(*arguments: str) -> Result:
        code = _run([*arguments, "--data", str(directory)])
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, output, errors)

    return command


def status(cli: Cli) -> dict[str, Any]:
    done = cli("cluster", "status", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(cli: Cli, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first status of which the condition holds; pytest's timeout bounds it."""
    while not condition(overview := status(cli)):
        time.sleep(0.02)  # the brokers need the processor more
    return overview


def test_status_of_a_whole_cluster(cli: Cli, directory: Path) -> None:
    overview = until(cli, lambda o: len(o["partitions"]) == 8 and not o["under_replicated"])
    assert [(b["broker"], b["rack"], b["state"]) for b in overview["brokers"]] == [
        (1, "a", "up"),
        (2, "b", "up"),
        (3, "c", "up"),
    ]
    assert overview["controller"] in (1, 2, 3)
    assert {b["quorum"] for b in overview["brokers"]} == {"leader", "voter"}
    assert sum(b["leads"] for b in overview["brokers"]) == 8
    assert all(b["replicas"] == b["in_sync"] == 8 for b in overview["brokers"])
    assert overview["leaderless"] == []
    assert overview["metadata_version"] > 0
    table = cli("cluster", "status").stdout
    assert "8 partitions, 0 under-replicated, 0 without a leader" in table
    assert homes_in(directory)[0].address in table


def test_a_plan_for_a_cluster_that_is_even_moves_nothing(cli: Cli) -> None:
    assert json.loads(cli("partition", "reassign", "plan").stdout) == {"version": 1, "partitions": []}


def test_starting_a_cluster_again_leaves_running_brokers_alone(cli: Cli, directory: Path) -> None:
    pids = [home.process() for home in homes_in(directory)]
    again = cli("cluster", "start", *HOW, "--config", str(directory.parent / "config.yaml"), "--json")
    assert {b["outcome"] for b in json.loads(again.stdout)["brokers"]} == {"running"}
    assert [home.process() for home in homes_in(directory)] == pids
    refused = cli("cluster", "start", "--brokers", "5")
    assert (refused.returncode, "`penstock broker add`" in refused.stderr) == (2, True)
    refused = cli("cluster", "start", "--racks", "a,,c")
    assert (refused.returncode, "an empty zone name" in refused.stderr) == (2, True)


def test_an_addition_that_is_interrupted_leaves_no_broker_and_deletes_nothing(
    cli: Cli, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(homes: list[BrokerHome], timeout_s: float) -> None:
        assert [home.config_file.is_file() for home in homes] == [True]
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.cluster.membership.start_all", interrupted)
    before = set(directory.iterdir())
    assert cli("broker", "add").returncode == 130
    (aside,) = set(directory.iterdir()) - before
    assert aside.name == "removed-broker-4"
    assert (aside / "broker.yaml").is_file()
    shutil.rmtree(aside)


def test_a_killed_broker_is_missed_and_comes_back(cli: Cli) -> None:
    assert cli("broker", "kill", "2").stdout == "killed 2\n"
    lacking = until(cli, lambda o: len(o["under_replicated"]) == 8)
    assert [b["state"] for b in lacking["brokers"]] == ["up", "down", "up"]
    assert lacking["leaderless"] == []
    assert cli("broker", "kill", "2").stdout == "not running 2\n"
    assert cli("broker", "start", "2").stdout == "started 2\n"
    assert cli("broker", "start", "2").stdout == "running 2\n"
    until(cli, lambda o: not o["under_replicated"])


def test_a_stopped_broker_has_handed_over(cli: Cli, directory: Path) -> None:
    assert cli("broker", "stop", "1").stdout == "stopped 1\n"
    # The status is what the controller knows, if there is one: another broker may learn of the change later.
    overview = until(cli, lambda o: o["controller"] in (2, 3))
    assert overview["leaderless"] == []
    assert overview["brokers"][0]["leads"] == 0
    assert not homes_in(directory)[0].pid_file.exists()
    assert cli("broker", "start", "1").returncode == 0
    until(cli, lambda o: not o["under_replicated"])


def test_the_quorum(cli: Cli) -> None:
    found = json.loads(cli("quorum", "describe", "--json").stdout)
    assert sorted(voter["node"] for voter in found["voters"]) == [1, 2, 3]
    assert found["leader"] in (1, 2, 3)
    assert found["epoch"] > 0
    shown = cli("quorum", "describe").stdout
    assert shown.startswith(f"leader {found['leader']}  epoch ")


def test_a_broker_takes_its_share_and_gives_it_back(
    cli: Cli, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_late(line: DirectLine) -> ClusterImage:
        """The first broker that answers does not know the new one yet."""
        for module in (membership, moves):
            monkeypatch.setattr(module, "read_image", read_image)
        image = read_image(line)
        image.brokers.pop(4, None)
        return image

    for module in (membership, moves):
        monkeypatch.setattr(module, "read_image", read_late)
    added = cli("broker", "add")
    assert added.stdout.startswith("added 4 at 127.0.0.1:"), added.stderr
    overview = until(cli, lambda o: not o["under_replicated"])
    shares = {b["broker"]: b["replicas"] for b in overview["brokers"]}
    assert sum(shares.values()) == 24
    assert shares[4] in (5, 6)  # a fourth of 24, less what would not make it more even
    assert [b["quorum"] for b in overview["brokers"]].count("observer") == 1

    removed = cli("broker", "remove", "4")
    assert removed.returncode == 0, removed.stderr
    overview = until(cli, lambda o: [b["broker"] for b in o["brokers"]] == [1, 2, 3])
    assert all(b["replicas"] == 8 for b in overview["brokers"])
    assert [home.id for home in homes_in(directory)] == [1, 2, 3]
    assert (directory / "removed-broker-4" / "broker.log").exists()


def test_a_broker_that_is_gone_for_good_is_forgotten(cli: Cli) -> None:
    """As the runbook has it of a machine that is gone, and of a broken disk, when there are others enough."""
    assert cli("broker", "add").returncode == 0
    assert cli("broker", "kill", "4").returncode == 0
    removed = cli("broker", "remove", "4")
    assert removed.returncode == 0, removed.stderr
    until(cli, lambda o: not o["under_replicated"] and [b["broker"] for b in o["brokers"]] == [1, 2, 3])


def test_brokers_are_filled_and_replaced_automatically(cli: Cli, directory: Path) -> None:
    """Self-healing is on in clusters that `cluster start` has made; only its delay is too long for a test."""
    delay = "penstock.self.healing.delay.ms"

    def held_by_4(overview: dict[str, Any]) -> int:
        return sum(b["replicas"] for b in overview["brokers"] if b["broker"] == 4)

    with DirectLine(bootstrap_of(directory, ""), 60) as line:
        alter_common(line, {delay: "1000"}, [])
        try:
            assert cli("broker", "add", "--no-rebalance").returncode == 0
            until(cli, lambda o: held_by_4(o) >= 5 and not o["moving"])
            assert "self-healing after 1 s, shares for new brokers on" in cli("cluster", "status").stdout
            assert cli("broker", "kill", "4").returncode == 0
            overview = until(cli, lambda o: held_by_4(o) == 0 and not o["under_replicated"])
            assert [b["replicas"] for b in overview["brokers"]] == [8, 8, 8, 0]
            assert cli("broker", "remove", "4").returncode == 0
        finally:
            alter_common(line, {}, [delay])


def test_a_broker_that_the_replicas_need_is_not_removed(cli: Cli) -> None:
    refused = cli("broker", "remove", "3")
    assert refused.returncode == 1
    assert "has 3 replicas, and too few brokers" in refused.stderr
    assert len(status(cli)["brokers"]) == 3


def test_reassigning_by_a_plan(cli: Cli, tmp_path: Path) -> None:
    replicas = status(cli)["partitions"][0]["replicas"]
    turned = replicas[1:] + replicas[:1]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "gpu", "partition": 0, "replicas": turned}]}))
    assert cli("partition", "reassign", "verify", str(plan)).returncode == 1
    done = cli("partition", "reassign", "execute", str(plan), "--wait")
    assert done.stdout.splitlines()[-1] + "\n" == "done 1 moves\n", done.stderr
    # The next commands may ask a broker that learns of the end of the move later.
    eventually(lambda: cli("partition", "reassign", "verify", str(plan)).returncode == 0)
    moved = until(cli, lambda o: o["partitions"][0]["leader"] == turned[0])["partitions"][0]
    assert moved["replicas"] == turned
    eventually(lambda: cli("partition", "reassign", "list").stderr == "no moves in progress\n")
    assert cli("partition", "reassign", "cancel").stdout == "cancelled 0 moves\n"


def throttles(directory: Path) -> set[tuple[str, str]]:
    """What is throttled: (config, value) of the topic and the brokers."""
    cluster = Cluster(bootstrap_of(directory, ""), 60)
    resources = [topic_resource("gpu"), *(broker_resource(str(number)) for number in (1, 2, 3))]
    entries = [entry for resource in resources for entry in config_entries(cluster, resource)]
    return {
        (entry["name"], entry["value"])
        for entry in entries
        if ".replication.throttled." in entry["name"] and entry["source"].startswith("DYNAMIC")
    }


def test_a_throttle_holds_until_the_plan_is_done(cli: Cli, directory: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    now = status(cli)["partitions"][1]["replicas"]
    plan.write_text(
        json.dumps({"partitions": [{"topic": "gpu", "partition": 1, "replicas": now[1:] + now[:1]}]})
    )
    started = cli("partition", "reassign", "execute", str(plan), "--throttle", "50MB")
    assert started.stdout.startswith("started 1 moves"), started.stderr
    expected = {
        (f"{side}.replication.throttled.{what}", value)
        for side in ("leader", "follower")
        for what, value in (("rate", str(50 * 1024**2)), ("replicas", "*"))
    }
    # Each broker says what it is throttled by once it has applied the change.
    eventually(lambda: throttles(directory) == expected)
    while cli("partition", "reassign", "verify", str(plan)).returncode != 0:
        time.sleep(0.02)
    eventually(lambda: throttles(directory) == set())


def test_a_reassignment_that_makes_no_sense(cli: Cli, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "gpu", "partition": 0, "replicas": [1, 2, 99]}]}))
    refused = cli("partition", "reassign", "execute", str(plan))
    assert refused.returncode == 1
    assert "gpu-0" in refused.stderr
    assert "99" in refused.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "missing required field `partitions`"),
        (b"\xff\xfe", "JSON is malformed"),
        (b'{"version": 2, "partitions": []}', "`$.version`"),
        (b'{"partitions": [{"topic": "gpu", "partition": 0, "replicas": "12"}]}', "Expected `array`"),
        (b'{"partitions": [{"topic": "gpu", "partition": 0, "replicas": [99999999999]}]}', "2147483647"),
    ],
)
def test_an_invalid_plan_is_an_error(cli: Cli, tmp_path: Path, content: bytes, said: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(content)
    refused = cli("partition", "reassign", "execute", str(plan))
    assert refused.returncode == 2
    assert f"{plan} is not a plan: " in refused.stderr and said in refused.stderr


def test_a_throttle_that_lets_nothing_through_is_refused(cli: Cli, tmp_path: Path) -> None:
    refused = cli("partition", "reassign", "execute", str(tmp_path / "none"), "--throttle", "0")
    assert (refused.returncode, "--throttle 0 would stop all moves" in refused.stderr) == (2, True)


def test_a_number_that_no_broker_can_have_makes_no_folder(cli: Cli, directory: Path) -> None:
    before = set(directory.iterdir())
    refused = cli("broker", "add", "2147483648")
    assert (refused.returncode, "2147483648 is not in the range" in refused.stderr) == (2, True)
    assert set(directory.iterdir()) == before


def test_stop_and_start_of_the_whole(cli: Cli, directory: Path) -> None:
    """The last: what it finds must be what the others left."""
    before = status(cli)["cluster_id"]
    assert cli("cluster", "stop").stdout == "stopped 1\nstopped 2\nstopped 3\n"
    assert [home.process() for home in homes_in(directory)] == [None] * 3
    assert cli("cluster", "stop").stdout == "not running 1\nnot running 2\nnot running 3\n"
    refused = cli("cluster", "status")
    assert refused.returncode == 1
    assert "penstock cluster start --data" in refused.stderr
    assert cli("cluster", "start").stdout.startswith("ready 127.0.0.1:")
    overview = until(cli, lambda o: len(o["partitions"]) == 8 and not o["under_replicated"])
    assert overview["cluster_id"] == before


def test_a_cluster_is_not_kept_in_memory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["cluster", "start", "--data", str(tmp_path), "--set", "penstock.memory=true"]
    assert _run(arguments) == 2
    assert "would lose the votes" in capfd.readouterr().err
    assert homes_in(tmp_path) == []


def test_refused_settings_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("replication: {replica_lag_records_max: 1000}\npenstock: {memory: true}\n")
    assert _run(["cluster", "start", "--data", str(tmp_path / "data"), "--config", str(file)]) == 2
    assert "replication.replica_lag_records_max is refused: a burst" in capfd.readouterr().err


def test_a_voter_comes_and_goes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert _run([*arguments, "--data", str(tmp_path)]) == 0
        return capfd.readouterr().out

    try:
        run("cluster", "start", "--brokers", "1", "--port", "0")
        assert "0 partitions moved" in run("broker", "add", "--voter")
        assert _voters(run("quorum", "describe", "--json")) == [1, 2]
        run("broker", "remove", "1")
        assert _voters(run("quorum", "describe", "--json")) == [2]
        # What was voted on is in the log, whatever the config file says of the voters at the beginning.
        run("cluster", "stop")
        run("cluster", "start")
        assert _voters(run("quorum", "describe", "--json")) == [2]
        # A broker that joins now knows none of the first voters.
        assert "added 3" in run("broker", "add", "--timeout", "120")
    finally:
        stop_again(homes_in(tmp_path))


def _voters(described: str) -> list[int]:
    return sorted(voter["node"] for voter in json.loads(described)["voters"])


def test_one_file_and_a_number_for_each_make_a_cluster(tmp_path: Path) -> None:
    """As on several machines, without `penstock cluster`: the list of brokers has their addresses."""
    first = consecutive_free_ports(6)
    ports = range(first, first + 3)
    servers = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    file = tmp_path / "broker.yaml"
    file.write_text(
        f"cluster: {{bootstrap_servers: [{servers}], internal_port_offset: 3}}\n"
        "replication: {default_replication_factor: 3}\n"
        "topics: {gpu: {partitions: 2}}\n"
    )
    brokers = []
    try:
        for number in (1, 2, 3):
            arguments = ("--set", f"broker.id={number}", "--set", f"broker.data_dir={tmp_path / str(number)}")
            brokers.append(spawn(["up", "--config", str(file), *arguments], tmp_path / f"{number}.log"))
        for (_, output), port in zip(brokers, ports, strict=True):
            with os.fdopen(output) as lines:
                assert lines.readline() == f"ready 127.0.0.1:{port}\n"
        with DirectLine(f"127.0.0.1:{ports[2]}", 60) as line:
            while len((overview := cluster_overview(line))["partitions"]) < 2:
                time.sleep(0.02)
        assert [len(p["replicas"]) for p in overview["partitions"]] == [3, 3]
        assert [b["quorum"] for b in overview["brokers"]].count("voter") == 2
    finally:
        for process, _ in brokers:
            send_signal(process, signal.SIGKILL)
            os.waitpid(process.pid, 0)
