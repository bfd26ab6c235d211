"""`penstock cluster status` on a cluster in this process, of which something is wrong."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.cluster.overview_output import print_awaited, print_overview
from penstock.cli.contacts import NoContact
from penstock.cli.direct import DirectLine
from penstock.metadata.clocks import CLOCKS_DISAGREE
from penstock.storage.recovery_report import Corruption
from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import create, produce


def change(running: Cluster, broker: int, how: Callable[[Broker, Partition], None]) -> None:
    """Do something to a broker and its replica of the topic, where they live."""
    node = running._nodes[broker]

    def do() -> None:
        partition = node.broker.stages.storage.partitions.find("t", 0)
        assert isinstance(partition, Partition)
        how(node.broker, partition)

    node.call(do).result()


def damage(_: Broker, partition: Partition) -> None:
    partition.log.recovery.found(Corruption("a file", 0, 1, 0, 1))


def fail(_: Broker, partition: Partition) -> None:
    partition.health.offline = "it is broken"


def fill(_: Broker, partition: Partition) -> None:
    partition.health.full = "there is no room"


def distrust(broker: Broker, _: Partition) -> None:
    broker.stages.cluster.node.clock_watch.compared(
        broker.stages.cluster.node.clock_watch.read(), CLOCKS_DISAGREE
    )
    broker.stages.cluster.node.image_check.diverged = "the metadata differs"


def test_status_names_brokers_whose_clock_or_metadata_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(brokers=3) as running:
        create(running, "t")
        change(running, 2, distrust)
        # No heartbeat says meanwhile that the clock is right.
        monkeypatch.setattr("penstock.broker.node.clock_watch.ClockWatch.compared", lambda *_: None)
        change(running, 2, distrust)
        with DirectLine(running.bootstrap, 60) as line:
            overview = cluster_overview(line)
    assert overview["brokers"][1]["deletion_suspended"].startswith("the clocks of the brokers disagree")
    print_overview(overview)
    printed = capsys.readouterr().out
    assert "broker 2: nothing is deleted by time: the clocks of the brokers disagree" in printed
    assert "broker 2: the metadata differs" in printed


def test_status_shows_damage_failed_directories_and_balancing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No check for room runs meanwhile.
    monkeypatch.setattr("penstock.broker.app.maintenance._ROOM_MS", 3_600_000)
    # The damage stays: a follower repairs it, or cuts what is not committed, as soon as its role changes.
    monkeypatch.setattr("penstock.broker.healing.scrubber.Scrubber.repair_soon", lambda *_: None)
    monkeypatch.setattr("penstock.broker.replica.replicas.Replicas._truncate_damaged", lambda *_: None)
    with cluster(brokers=3, config={"penstock.balance": "leaders"}) as running:
        create(running, "t")
        produce(running, "t", b"value")
        with DirectLine(running.bootstrap, 60) as line:
            whole = cluster_overview(line)
            change(running, 1, fill)
            full = cluster_overview(line)
            change(running, 2, damage)
            change(running, 3, fail)
            running.wait_for_isr("t", size=2)
            broken = cluster_overview(line)
    assert (whole["balance"], whole["moving"], whole["damaged"]) == ("leaders", 0, [])
    assert all(broker["bytes"] > 0 and not broker["offline_directories"] for broker in whole["brokers"])
    assert not any(broker["full_directories"] for broker in whole["brokers"])
    assert [broker["full_directories"] for broker in full["brokers"]] == [["/data"], [], []]
    print_overview(full)
    assert "broker 1: the data directory /data is full" in capsys.readouterr().out
    assert broken["damaged"] == [{"broker": 2, "topic": "t", "partition": 0, "ranges": 1}]
    assert [broker["offline_directories"] for broker in broken["brokers"]] == [[], [], ["/data"]]
    print_overview(broken)
    printed = capsys.readouterr().out
    assert "broker 2: t-0 has 1 damaged range(s)" in printed
    assert "broker 3: the data directory /data is offline" in printed
    assert "0 moving (penstock.balance leaders)" in printed


def test_status_distinguishes_hanging_brokers_from_dead_ones(capsys: pytest.CaptureFixture[str]) -> None:
    # What hangs is not taken for gone because the machine stands still.
    with cluster(brokers=5, config={"broker.session.timeout.ms": 60_000}) as running:
        controller = running.controller
        assert controller is not None
        hangs, gone, *_ = (broker for broker in running.ids if broker != controller)
        create(running, "t")
        running.pause(hangs)
        running.kill(gone)
        with DirectLine(running.address(controller), 3) as line:
            overview = cluster_overview(line)
        running.resume(hangs)
        with DirectLine(running.address(hangs), 60) as line:  # it accepts waiting connections before it ends
            assert cluster_overview(line)["brokers"]
    states = {broker["broker"]: broker["state"] for broker in overview["brokers"]}
    assert (states.pop(hangs), states.pop(gone), set(states.values())) == ("silent", "down", {"up"})
    # Without a controller no dead replica leaves the ISR, and a dead leader is shown as none.
    lost = [
        partition | {"leader": None, "isr": partition["replicas"]} for partition in overview["partitions"]
    ]
    unknown = {"controller": None, "moving": None, "balance": None, "partitions": lost}
    print_overview(overview | unknown)
    printed = capsys.readouterr().out
    assert "no controller: metadata cannot change until more than half of the voters run" in printed
    assert "unknown moving (penstock.balance unknown)" in printed
    assert "\nt " in printed


def test_status_shows_the_metadata_of_the_controller() -> None:
    """The first broker that answers may have a failed disk, and know nothing newer."""
    with cluster(brokers=3) as running:
        controller = running.controller
        other = next(broker for broker in running.ids if broker != controller)
        with DirectLine(running.address(other), 60) as line:
            assert cluster_overview(line)["controller"] == controller
            running.kill(other)
            assert cluster_overview(line)["controller"] == controller


def test_status_names_the_brokers_that_partitions_without_a_leader_wait_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brokers = [{"broker": 1, "state": "up"}, {"broker": 2, "state": "down"}, {"broker": 3, "state": "fenced"}]
    replicas = ([1, 2], [2, 1], [1, 2, 3], [1])
    print_awaited({"brokers": brokers, "leaderless": [{"replicas": nodes} for nodes in replicas]})
    assert capsys.readouterr().out.splitlines() == [
        "2 partition(s) without a leader wait for replicas: broker(s) 2, not up",
        "1 partition(s) without a leader wait for replicas: broker(s) 2, 3, not up",
        "1 partition(s) without a leader wait for replicas: see the controller's log",
    ]


def test_no_second_request_waits_for_a_cluster_that_does_not_respond() -> None:
    """`penstock cluster status` waited for --timeout twice."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with DirectLine(f"127.0.0.1:{mute.getsockname()[1]}", 0.2) as line, pytest.raises(NoContact):
            cluster_overview(line)
        mute.settimeout(0.2)
        mute.accept()[0].close()
        with pytest.raises(TimeoutError):  # there was one connection
            mute.accept()
