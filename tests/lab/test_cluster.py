"""Clusters for measurements: how their brokers are set up, and what can be done to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.cluster import Cluster, penstock_cluster
from lab.home import LabError
from lab.server import Server

pytestmark = pytest.mark.process

PATIENCE_S = 60.0


def properties(folder: Path, broker: int) -> dict[str, str]:
    lines = (folder / f"broker-{broker}" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def test_brokers_share_voters_and_differ_in_place(tmp_path: Path) -> None:
    cluster = penstock_cluster(tmp_path, {"num.partitions": "4", "min.insync.replicas": "1"})
    configs = [properties(tmp_path, broker) for broker in (1, 2, 3)]
    assert len({config["controller.quorum.voters"] for config in configs}) == 1
    assert [config["broker.rack"] for config in configs] == ["RACK1", "RACK2", "RACK3"]
    assert {config["default.replication.factor"] for config in configs} == {"3"}
    assert {config["num.partitions"] for config in configs} == {"4"}
    assert {config["min.insync.replicas"] for config in configs} == {"1"}, "settings go before defaults"
    assert len({port for config in configs for port in config["listeners"].split(",")}) == 6
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers)


def test_a_single_broker_replicates_nothing(tmp_path: Path) -> None:
    penstock_cluster(tmp_path, {}, brokers=1)
    assert properties(tmp_path, 1)["offsets.topic.replication.factor"] == "1"
    assert properties(tmp_path, 1)["min.insync.replicas"] == "1"


def test_other_brokers_reach_a_broker_at_the_requested_address(tmp_path: Path) -> None:
    passed: list[tuple[int, int]] = []

    def way(node: int, port: int) -> int:
        passed.append((node, port))
        return port + 10_000

    cluster = penstock_cluster(tmp_path, {}, brokers=2, way=way)
    client, internal = [port for node, port in passed if node == 2]
    config = properties(tmp_path, 2)
    assert config["listeners"] == f"PLAINTEXT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}"
    assert f":{client + 10_000}," in config["advertised.listeners"]
    assert config["controller.quorum.voters"].endswith(f"2@127.0.0.1:{internal + 10_000}")
    assert cluster.brokers[1].port == client + 10_000


def test_brokers_come_go_hang_and_return(tmp_path: Path) -> None:
    # Sessions that end soon, but not because the machine is busy.
    sessions = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "100"}
    cluster = penstock_cluster(tmp_path, sessions)
    first, second, third = cluster.brokers
    assert cluster.start() > 0
    try:
        eventually(lambda: [broker.knows() for broker in cluster.brokers] == [3, 3, 3])
        first.kill()
        assert not first.runs()
        assert first.knows() == 0
        eventually(lambda: second.knows() == third.knows() == 2)
        first.start()
        cluster.wait_ready()
        third.pause()
        eventually(lambda: first.knows() == second.knows() == 2)
        third.resume()
        cluster.wait_ready()
        third.pause()
    finally:
        cluster.stop()
    assert not any(broker.runs() for broker in cluster.brokers)


def test_a_failed_start_is_reported_with_the_last_output_of_the_broker(tmp_path: Path) -> None:
    last_words = ["sh", "-c", "echo no room here"]
    cluster = Cluster([Server("penstock", 1, last_words, tmp_path / "log")])
    with pytest.raises(LabError, match=r"knows of 0 brokers, not 1:\nno room here"):
        cluster.start()
    assert not cluster.brokers[0].runs()
