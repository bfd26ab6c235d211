"""The brokers of a machine: ids, ports, folders, votes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.config_sources import effective
from penstock.cli.failure import Failure
from penstock.cli.machine.layout import Machine, lay_out
from penstock.model.config import BrokerConfig, effective_configs
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import InvalidConfig

PAGE = Path(__file__).parents[3] / "docs" / "cores.md"


def configs(folder: Path, **others: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return effective_configs([{"log.dirs": str(folder), "broker.port": "9092", **named}])


def listeners(machine: Machine) -> list[str]:
    return [home.configs["listeners"] for home in machine.homes]


def test_ids_ports_and_folders_follow_each_other(tmp_path: Path) -> None:
    machine = lay_out(configs(tmp_path), 3)
    assert [home.id for home in machine.homes] == [1, 2, 3]
    assert machine.address == "127.0.0.1:9092"
    assert listeners(machine) == [
        f"PLAINTEXT://127.0.0.1:{9092 + core},INTERNAL://127.0.0.1:{19092 + core}" for core in (1, 2, 3)
    ]
    for home in machine.homes:
        assert home.configs["log.dirs"] == str(tmp_path / f"broker-{home.id}" / "data")
        config = BrokerConfig(home.configs)
        assert config.penstock_bootstrap_port == 9092
        assert config.penstock_machine == machine.name


def test_one_broker_of_a_machine_votes(tmp_path: Path) -> None:
    machine = lay_out(configs(tmp_path), 4)
    assert [home.configs["process.roles"] for home in machine.homes] == ["broker,controller", *["broker"] * 3]
    assert machine.voter is machine.homes[0]
    assert {home.configs["controller.quorum.voters"] for home in machine.homes} == {"1@127.0.0.1:19093"}


def test_brokers_of_a_machine_send_fewer_heartbeats_unless_they_are_configured(tmp_path: Path) -> None:
    laid_out = lay_out(configs(tmp_path), 2).homes
    assert [BrokerConfig(home.configs).broker_heartbeat_interval_ms for home in laid_out] == [1000, 1000]
    (home, _) = lay_out({**configs(tmp_path), "broker.heartbeat.interval.ms": "200"}, 2).homes
    assert BrokerConfig(home.configs).broker_heartbeat_interval_ms == 200


def test_topics_of_one_machine_have_one_replica(tmp_path: Path) -> None:
    """Replicas never share a machine."""
    (home, *_) = lay_out(configs(tmp_path), 4).homes
    assert home.configs["default.replication.factor"] == "1"
    assert home.configs["offsets.topic.replication.factor"] == "1"


def cluster_of_three(folder: Path, number: int) -> Mapping[str, str]:
    servers = "m1:9092,m2:9092,m3:9092"
    layers = {"cluster.bootstrap_servers": servers, "broker.host": "0.0.0.0", "node.id": str(number)}
    return effective_configs([{"log.dirs": str(folder), **layers}])


def test_machines_of_a_cluster_have_the_same_file(tmp_path: Path) -> None:
    machines = [lay_out(cluster_of_three(tmp_path / str(n), n), 2) for n in (1, 2, 3)]
    assert [[home.id for home in machine.homes] for machine in machines] == [[1, 2], [101, 102], [201, 202]]
    voters = {home.configs["controller.quorum.voters"] for machine in machines for home in machine.homes}
    assert voters == {"1@m1:19093,101@m2:19093,201@m3:19093"}
    second = machines[1].homes[1]
    assert second.configs["advertised.listeners"] == "PLAINTEXT://m2:9094,INTERNAL://m2:19094"
    assert second.configs["default.replication.factor"] == "3"
    assert "penstock.cluster.id" not in second.configs, "it follows from the voters, on every machine"
    assert machines[1].address == "m2:9092"


def test_the_file_of_the_page_is_laid_out_for_each_of_three_machines(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    file = tmp_path / "machine.yaml"
    file.write_text(found[1].replace("/var/lib/penstock", str(tmp_path / "data")))
    for number in (1, 2, 3):
        _, given = effective(file, {"node.id": str(number), "log.dirs": str(tmp_path / str(number))}, ())
        allowed = {**given, "penstock.insecure.listeners.allow": "true"}
        machine = lay_out(allowed, 2)
        assert machine.address == f"machine-{number}:9092"
        assert machine.voter is machine.homes[0]


def test_a_sixth_machine_has_no_voter(tmp_path: Path) -> None:
    servers = ",".join(f"m{n}:9092" for n in range(1, 7))
    layers = {"cluster.bootstrap_servers": servers, "broker.host": "0.0.0.0", "node.id": "6"}
    machine = lay_out(effective_configs([{"log.dirs": str(tmp_path), **layers}]), 2)
    assert machine.voter is None
    assert {home.configs["process.roles"] for home in machine.homes} == {"broker"}


def test_a_second_start_is_the_same_machine(tmp_path: Path) -> None:
    first = lay_out(configs(tmp_path), 2)
    again = lay_out(configs(tmp_path), 3)
    assert again.name == first.name
    ids = {home.configs["penstock.cluster.id"] for home in (*first.homes, *again.homes)}
    assert len(ids) == 1
    with pytest.raises(Failure, match="belongs to machine 1, not 2"):
        lay_out(configs(tmp_path, node_id="2"), 2)


def test_a_full_disk_leaves_the_file_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lay_out(configs(tmp_path), 2).homes[0].configs["penstock.cluster.id"]

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Failure, match=r"cannot write to .*: No space left on device"):
            lay_out(configs(tmp_path, broker_port="9192"), 2)
    assert lay_out(configs(tmp_path), 2).homes[0].configs["penstock.cluster.id"] == before


def test_a_machine_starts_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [home.configs for home in lay_out(configs(tmp_path), 2).homes]

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert [home.configs for home in lay_out(configs(tmp_path), 2).homes] == before
    (tmp_path / "broker-1" / "data").mkdir()
    # Another --data would start an empty cluster.
    for changed in ({"log_retention_ms": "5"}, {"broker_port": "9192"}):
        with pytest.raises(Failure, match=r"No space left on device: fix that first"):
            lay_out(configs(tmp_path, **changed), 2)


def test_the_file_of_the_machine_is_written_only_if_it_changes(tmp_path: Path) -> None:
    lay_out(configs(tmp_path), 2)
    before = (tmp_path / "machine.yaml").stat()
    lay_out(configs(tmp_path), 3)
    assert (tmp_path / "machine.yaml").stat().st_ino == before.st_ino
    assert (tmp_path / "machine.yaml").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("content", ["", "# Written by `penstock up --cores`.\n", "number"])
def test_a_damaged_file_of_the_machine_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "machine.yaml").write_text(content)
    with pytest.raises(Failure, match=r"machine.yaml is empty or damaged: restore it"):
        lay_out(configs(tmp_path), 2)


def test_data_never_gets_a_new_cluster_id(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    both = {**configs(tmp_path), "log.dirs": f"{first},{second}"}
    (home, *_) = lay_out(both, 2).homes
    id_ = home.configs["penstock.cluster.id"]
    (second / "broker-2" / "data").mkdir(parents=True)
    (second / "broker-2" / "data" / "meta.json").write_text("{}")
    (first / "machine.yaml").unlink()
    with pytest.raises(Failure, match=r"machine.yaml has no cluster_id, although .*/b/broker-2/data has"):
        lay_out(both, 2)
    (home, *_) = lay_out({**both, "penstock.cluster.id": id_}, 2).homes
    assert home.configs["penstock.cluster.id"] == id_


def test_placeholders_have_their_values_and_stay_in_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNT", "7")
    monkeypatch.setenv("PORT_OF_CLIENTS", "9292")
    given = {"num.partitions": "${env:COUNT}", "listeners": "PLAINTEXT://127.0.0.1:${env:PORT_OF_CLIENTS}"}
    machine = lay_out({**configs(tmp_path), **given}, 2)
    assert [home.configs["num.partitions"] for home in machine.homes] == ["${env:COUNT}"] * 2
    assert [home.address for home in machine.homes] == ["127.0.0.1:9293", "127.0.0.1:9294"]
    monkeypatch.setenv("COUNT", "none")
    with pytest.raises(InvalidConfig, match=r"num.partitions"):
        lay_out({**configs(tmp_path), **given}, 2)


def test_brokers_of_one_machine_reach_each_other_on_loopback(tmp_path: Path) -> None:
    """A listener for clients with TLS must not bring one without TLS to other machines."""
    machine = lay_out({**configs(tmp_path), "listeners": "SASL_SSL://0.0.0.0:9092"}, 2)
    assert listeners(machine)[1] == "SASL_SSL://0.0.0.0:9094,INTERNAL://127.0.0.1:19094"
    named = {"listeners": "SASL_SSL://0.0.0.0:9092", "controller.listener.names": "CONTROLLER"}
    machine = lay_out({**configs(tmp_path), **named}, 2)
    assert listeners(machine)[1] == "SASL_SSL://0.0.0.0:9094,CONTROLLER://127.0.0.1:19094"


def test_an_open_listener_between_machines_is_refused_by_its_name(tmp_path: Path) -> None:
    given = {"listeners": "SASL_SSL://0.0.0.0:9092", "controller.quorum.voters": "1@m1:19092,2@m2:19092"}
    with pytest.raises(Failure, match=r"INTERNAL://0.0.0.0:19093, the listener between brokers .*docs/cores"):
        lay_out({**configs(tmp_path / "a"), **given}, 2)
    assert not (tmp_path / "a").exists()
    lay_out({**configs(tmp_path / "a"), **given, "penstock.insecure.listeners.allow": "true"}, 2)


def test_an_authorizer_needs_brokers_that_authenticate(tmp_path: Path) -> None:
    """Without an error, the brokers would be refused, and wait for each other for ever."""
    given = {**configs(tmp_path), "listeners": "SASL_SSL://127.0.0.1:9092"}
    given["authorizer.class.name"] = STANDARD_AUTHORIZER
    with pytest.raises(Failure, match=r"INTERNAL://127.0.0.1:19093, .*authorizer would refuse the brokers"):
        lay_out({**given, "super.users": "User:admin"}, 2)
    lay_out({**given, "super.users": "User:admin"}, 1)
    for accepted in (
        {"super.users": "User:admin; User:ANONYMOUS"},
        {"allow.everyone.if.no.acl.found": "true"},
    ):
        lay_out({**given, **accepted}, 2)
    protocols = "SASL_SSL:SASL_SSL,INTERNAL:SSL"
    lay_out({**given, "listener.security.protocol.map": protocols, "super.users": "User:broker"}, 2)


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("A://127.0.0.1:9092,B://127.0.0.1:9093", "listener B and listener A would both have port 9094"),
        ("A://127.0.0.1:9092,B://0.0.0.0:9091", "listener B and the common port would both have port 9092"),
        ("A://127.0.0.1:0,B://127.0.0.1:0", "more than 2 apart"),
        ("A://127.0.0.1:65534", "listener A would need port 65536"),
    ],
)
def test_ports_of_listeners_must_not_meet(tmp_path: Path, listeners: str, message: str) -> None:
    given = {"listeners": listeners, "listener.security.protocol.map": "A:SSL,B:SSL"}
    with pytest.raises(Failure, match=message):
        lay_out({**configs(tmp_path), **given}, 2)


def test_listeners_at_different_addresses_may_have_the_same_ports(tmp_path: Path) -> None:
    given = {
        "listeners": "A://127.0.0.1:9092,B://127.0.0.2:9092",
        "listener.security.protocol.map": "A:SSL,B:SSL",
    }
    machine = lay_out({**configs(tmp_path), **given}, 2)
    assert listeners(machine)[0].startswith("A://127.0.0.1:9093,B://127.0.0.2:9093,INTERNAL://")


def test_an_internal_listener_on_any_port_has_one_at_the_usual_distance(tmp_path: Path) -> None:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"}
    machine = lay_out({**configs(tmp_path), **given}, 2)
    base = int(machine.address.rpartition(":")[2])
    assert machine.homes[1].internal_address == f"127.0.0.1:{base + 10_002}"


def test_free_ports_are_those_of_the_last_start(tmp_path: Path) -> None:
    first = lay_out(configs(tmp_path, broker_port="0"), 2)
    assert lay_out(configs(tmp_path, broker_port="0"), 2).address == first.address


def test_fewer_cores_would_leave_data_behind(tmp_path: Path) -> None:
    lay_out(configs(tmp_path), 3)
    (BrokerHome(tmp_path, 3).data).mkdir(parents=True)
    with pytest.raises(Failure, match=r"has broker-3, which --cores 2 would not start.*drain"):
        lay_out(configs(tmp_path), 2)


def test_data_of_a_single_broker_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(Failure, match="has the data of a single broker"):
        lay_out(configs(tmp_path), 2)


@pytest.mark.parametrize(
    ("others", "cores", "message"),
    [
        ({"penstock_memory": "true"}, 2, "--cores needs data on disk"),
        ({"node_id": "0"}, 2, "the number of the machine, from 1"),
        ({}, 101, "--cores 101 is not in the range from 1 to 100"),
    ],
)
def test_a_wrong_machine_has_one_line(
    tmp_path: Path, others: dict[str, str], cores: int, message: str
) -> None:
    with pytest.raises(Failure, match=message):
        lay_out({**configs(tmp_path), **{n.replace("_", "."): v for n, v in others.items()}}, cores)


def test_several_disks_have_a_folder_of_each_broker(tmp_path: Path) -> None:
    both = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    machine = lay_out({**configs(tmp_path), **both}, 2)
    assert machine.homes[1].configs["log.dirs"] == (
        f"{tmp_path / 'a/broker-2/data'},{tmp_path / 'b/broker-2/data'}"
    )
