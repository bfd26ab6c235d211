"""Folders of brokers: what they hold, and new clusters' configs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli.cluster.broker_home import BrokerHome, bootstrap_of, home_of, homes_in
from penstock.cli.cluster.listening import free_port
from penstock.cli.cluster.plan import ClusterPlan, make_homes
from penstock.cli.cluster.processes import Process, is_alive, read_pid_file, spawn, write_pid_file
from penstock.cli.cluster.starting import start_all, stop_again
from penstock.cli.commands.cluster import stop
from penstock.cli.failure import Failure
from penstock.model.config import BrokerConfig, DeclaredTopic
from penstock.model.errors import InvalidConfig
from tests.cli.running import consecutive_free_ports

PLAN = ClusterPlan(brokers=3, port=0)


def test_a_folder_keeps_configs_and_topics(tmp_path: Path) -> None:
    topic = DeclaredTopic("gpu", 3, -1, {"retention.ms": "5", "compression.type": "zstd"})
    BrokerHome(tmp_path, 4).write({"node.id": "4", "listeners": "PLAINTEXT://h:1,INTERNAL://h:2"}, [topic])
    home = home_of(tmp_path, 4)
    assert home.configs == {"node.id": "4", "listeners": "PLAINTEXT://h:1,INTERNAL://h:2"}
    assert home.topics == (topic,)
    assert (home.address, home.internal_address) == ("h:1", "h:2")
    assert home.process() is None


def test_folders_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        BrokerHome(tmp_path, number).write({}, ())
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "removed-broker-3").mkdir()
    assert [home.id for home in homes_in(tmp_path)] == [1, 9, 10]
    assert homes_in(tmp_path / "nothing") == []


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="has no cluster"):
        home_of(tmp_path, 1)
    with pytest.raises(Failure, match="has no cluster"):
        bootstrap_of(tmp_path, "")
    BrokerHome(tmp_path, 2).write({}, ())
    with pytest.raises(Failure, match="no broker 1: it has 2"):
        home_of(tmp_path, 1)
    with pytest.raises(Failure, match=r"no broker in .* is running: `penstock cluster start"):
        bootstrap_of(tmp_path, "")
    assert bootstrap_of(None, "given:1") == "given:1"


def test_a_slip_in_one_config_file_does_not_keep_the_others_from_being_stopped(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 1)
    home.write({"process.roles": "broker"}, ())
    assert not home.votes
    slip = BrokerHome(tmp_path, 2)
    slip.write({"proces.roles": "broker"}, ())
    assert slip.votes
    stop(tmp_path)


def test_a_stale_pid_file_is_removed_and_its_pid_left_alone(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 1)
    home.write({}, ())
    write_pid_file(home.pid_file, Process(os.getpid(), "long ago"))
    assert home.process() is None
    assert home.signal(signal.SIGKILL) is None
    assert not home.pid_file.exists()


def test_a_folder_that_was_moved_does_not_start_without_its_data(tmp_path: Path) -> None:
    make_homes(tmp_path / "before", PLAN._replace(brokers=1))
    (tmp_path / "before" / "broker-1" / "data").mkdir()
    (tmp_path / "before").rename(tmp_path / "after")
    (home,) = homes_in(tmp_path / "after")
    with pytest.raises(
        Failure, match=r"after/broker-1/data would not be used, because log.dirs is .*/before/"
    ):
        home.start()
    assert not home.log_file.exists()


def test_ctrl_c_during_a_start_leaves_the_pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_spawn(arguments: list[str], log: Path, interpreter: str) -> tuple[Process, int]:
        os.kill(os.getpid(), signal.SIGINT)
        return Process(12, "then"), -1

    monkeypatch.setattr("penstock.cli.cluster.broker_home.spawn", interrupted_spawn)
    (home,) = make_homes(tmp_path, PLAN._replace(brokers=1))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            home.start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert read_pid_file(home.pid_file) == Process(12, "then")


@pytest.mark.process
def test_a_process_that_cannot_be_recorded_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is full; the others of a first start end with it."""
    spawned: list[Process] = []

    def watched_spawn(arguments: list[str], log: Path, interpreter: str) -> tuple[Process, int]:
        process, output = spawn(arguments, log, interpreter)
        spawned.append(process)
        return process, output

    monkeypatch.setattr("penstock.cli.cluster.broker_home.spawn", watched_spawn)
    homes = make_homes(tmp_path, PLAN)
    homes[1].pid_file.symlink_to("/dev/full")
    with pytest.raises(Failure, match=r"broker 2 cannot be started in .*/broker-2: No space left on device"):
        start_all(homes, 30, together=True)
    assert [is_alive(process) for process in spawned] == [False, False]
    assert not any(home.pid_file.is_symlink() or home.pid_file.exists() for home in homes)


@pytest.mark.process
def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (home,) = make_homes(tmp_path, PLAN._replace(brokers=1))
    home.log_file.mkdir()
    with pytest.raises(Failure, match=r"broker 1 cannot be started in .*/broker-1: Is a directory"):
        home.start()


def test_a_part_of_a_cluster_is_not_left_behind(tmp_path: Path) -> None:
    """It would be taken for a smaller one."""
    (tmp_path / "broker-3").touch()
    with pytest.raises(Failure, match=r"cannot create .*/broker-3: File exists"):
        make_homes(tmp_path, PLAN)
    assert homes_in(tmp_path) == []


def test_an_unwritable_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Failure, match=r"cannot create .*/broker-1: Not a directory: choose another --data"):
        make_homes(tmp_path / "file", PLAN)
    home = BrokerHome(tmp_path, 1)
    home.path.mkdir()
    assert home.last_words() == "it logged nothing"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    assert home.last_words().startswith("its disk is full")


def test_a_new_cluster(tmp_path: Path) -> None:
    plan = PLAN._replace(brokers=6, racks=("a", "b"), configs={"num.partitions": "4"})
    homes = make_homes(tmp_path, plan)
    configs = [BrokerConfig(home.configs) for home in homes]
    assert [config.node_id for config in configs] == [1, 2, 3, 4, 5, 6]
    assert [config.broker_rack for config in configs] == ["a", "b"] * 3
    assert {tuple(config.quorum_voters) for config in configs} == {(1, 2, 3, 4, 5)}
    assert [config["process.roles"] for config in configs] == [("broker", "controller")] * 5 + [("broker",)]
    first = configs[0]
    assert (first.default_replication_factor, first.min_insync_replicas, first.num_partitions) == (3, 2, 4)
    addresses = [a for home in homes for a in (home.address, home.internal_address)]
    assert len(set(addresses)) == 12


def test_two_clusters_have_two_ids_though_they_may_have_one_address(tmp_path: Path) -> None:
    plan = PLAN._replace(port=consecutive_free_ports(3))
    clusters = [make_homes(tmp_path / name, plan) for name in ("earlier", "later")]
    ids = [{BrokerConfig(home.configs).penstock_cluster_id for home in homes} for homes in clusters]
    assert [len(each) for each in ids] == [1, 1]
    assert ids[0] != ids[1]
    given = make_homes(
        tmp_path / "given", plan._replace(configs={"penstock.cluster.id": "AAAAAAAAAAAAAAAAAAAAAQ"})
    )
    assert given[0].configs["penstock.cluster.id"] == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_replicas_follow_from_the_number_of_brokers(
    brokers: int, replicas: int, in_sync: int, tmp_path: Path
) -> None:
    home = make_homes(tmp_path, PLAN._replace(brokers=brokers))[0]
    config = BrokerConfig(home.configs)
    assert (config.default_replication_factor, config.min_insync_replicas) == (replicas, in_sync)


def test_ports_follow_the_first(tmp_path: Path) -> None:
    first = consecutive_free_ports(3)
    homes = make_homes(tmp_path, PLAN._replace(port=first))
    assert [home.address for home in homes] == [f"127.0.0.1:{first + i}" for i in range(3)]


def test_a_port_in_use_is_an_error_before_anything_is_created(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=rf"127.0.0.1:{port} is in use: .* another --port"):
            make_homes(tmp_path, PLAN._replace(port=port))
        assert free_port("127.0.0.1", port, set()) != port
    assert homes_in(tmp_path) == []


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (PLAN._replace(host="192.0.2.1"), "cannot listen on 192.0.2.1:.*: choose a --host"),
        (
            PLAN._replace(host="nowhere.invalid", port=9092),
            "cannot listen on nowhere.invalid:9092: .* --host",
        ),
        (PLAN._replace(port=65534), "there is no port 65536: choose a lower --port"),
    ],
)
def test_an_address_that_cannot_be_bound_is_an_error(plan: ClusterPlan, said: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=said):
        make_homes(tmp_path, plan)
    assert homes_in(tmp_path) == []


def test_a_config_that_no_broker_takes_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"num\.partitions"):
        make_homes(tmp_path, PLAN._replace(configs={"num.partitions": "many"}))
    assert homes_in(tmp_path) == []


@pytest.mark.process
def test_a_broker_that_does_not_start_gives_the_reason_and_stops_the_others(tmp_path: Path) -> None:
    good, bad = make_homes(tmp_path, PLAN._replace(brokers=2))
    bad.config_file.write_text(bad.config_file.read_text() + "num.partitions: many\n")
    with pytest.raises(Failure, match=r"broker 2 did not start: .*num.partitions.*broker-2/broker.log"):
        start_all([good, bad], 90, together=True)
    assert good.process() is bad.process() is None
    assert not good.pid_file.exists()


@pytest.mark.process
def test_running_brokers_continue_if_a_new_one_does_not_start(tmp_path: Path) -> None:
    good, *others = make_homes(tmp_path, PLAN)
    bad = others[1]
    bad.config_file.write_text(bad.config_file.read_text() + "num.partitions: many\n")
    try:
        with pytest.raises(Failure, match=r"broker 3 did not start: .*num\.partitions"):
            start_all([good, *others], 90)
        assert [home.process() is not None for home in (good, *others)] == [True, True, False]
    finally:
        stop_again([good, *others])


@pytest.mark.process
def test_a_cluster_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    (first, *_) = make_homes(tmp_path, PLAN)
    with pytest.raises(Failure, match=r"not ready within 0.3 s: broker 1; .*broker-1/broker.log"):
        start_all([first], 0.3, together=True)  # one of three voters has no majority
    assert first.process() is None
