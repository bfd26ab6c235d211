"""Brokers that join a cluster, and lost brokers that are removed from it, on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.cluster import draining, membership
from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.membership import _await_absence, _way_in, forget_broker, remove_broker
from penstock.cli.cluster.moves import Move, start_moves
from penstock.cli.cluster.overview import cluster_overview, quorum_overview
from penstock.cli.cluster.processes import Process
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster, cluster
from tests.metadata.sites import cluster as image_of
from tests.testing.cluster_clients import CLIENT, PATIENCE_S, create, produce, read


def test_five_voters_are_enough() -> None:
    with cluster(brokers=5) as running, DirectLine(running.bootstrap, PATIENCE_S) as line:
        with pytest.raises(Failure, match="the quorum has 5 voters"):
            _way_in(line, votes=True)
        voters = _way_in(line, votes=False)["controller.quorum.voters"]
        assert sorted(voter.partition("@")[0] for voter in voters.split(",")) == ["1", "2", "3", "4", "5"]


def test_a_broker_that_is_gone_is_forgotten_with_its_vote() -> None:
    with cluster(brokers=4) as running:
        create(running, "t")
        produce(running, "t", b"kept")
        gone = running.isr("t")[0]
        with pytest.raises(Failure, match=f"broker {gone} is up and would register again: stop it first"):
            forget_broker(running.bootstrap, gone, PATIENCE_S)
        running.kill(gone)
        running.wait_for_isr("t", size=2)
        assert forget_broker(running.bootstrap, gone, PATIENCE_S) == 1
        left = [broker for broker in running.ids if broker != gone]
        assert running.wait_for_isr("t") == left
        with DirectLine(running.bootstrap, PATIENCE_S) as line:
            # The broker that answers may not know it yet.
            running.wait_until(
                lambda: [broker["broker"] for broker in cluster_overview(line)["brokers"]] == left
            )
            assert sorted(voter["node"] for voter in quorum_overview(line)["voters"]) == left
        assert read(running, "t", 1) == [b"kept"]
        with pytest.raises(Failure, match=f"there is no broker {gone}"):
            forget_broker(running.bootstrap, gone, PATIENCE_S)


def test_the_folder_of_a_broker_that_runs_is_not_taken_away(tmp_path: Path) -> None:
    home = BrokerHome(tmp_path, 2)
    with cluster(brokers=3) as running, DirectLine(running.address(1), PATIENCE_S) as line:
        with pytest.raises(Failure, match=r"broker 2 is still up, as a process that .*/broker-2/broker.pid"):
            _await_absence(line, home, 600)
        running.kill(2)
        _await_absence(line, home, PATIENCE_S)


def test_a_silent_broker_is_waited_for_until_its_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = BrokerHome(tmp_path, 2)
    with cluster(brokers=3) as running, DirectLine(running.address(1), PATIENCE_S) as line:
        monkeypatch.setattr(line, "send_each", lambda addresses, *_: dict.fromkeys(addresses))
        with pytest.raises(Failure, match=r"broker 2 has ended, .* after 0 s: repeat the command"):
            _await_absence(line, home, 0)


def test_a_removal_that_was_interrupted_at_last_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster has forgotten the broker already, and its folder is still in its place."""
    with cluster(brokers=3) as running:
        running.stop(3)
        forget_broker(running.address(1), 3, PATIENCE_S)
        for number in (1, 3):
            BrokerHome(tmp_path, number).write({"listeners": f"PLAINTEXT://{running.address(1)}"}, ())
        monkeypatch.setattr(BrokerHome, "process", lambda home: Process(0, "") if home.id == 1 else None)
        assert remove_broker(tmp_path, 3, PATIENCE_S) == (0, tmp_path / "removed-broker-3")
    assert not BrokerHome(tmp_path, 3).path.exists()


def test_missing_brokers_are_named_before_anything_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_majority(line: DirectLine) -> None:
        raise Failure("only 3 can be reached")

    monkeypatch.setattr("penstock.cli.cluster.membership.quorum_overview", no_majority)
    with pytest.raises(Failure, match="only 3 can be reached"):
        forget_broker("127.0.0.1:1", 1, PATIENCE_S)


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_broker_with_replicas_is_not_unregistered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """A partition is created on the broker while it stops."""
    steps: list[str] = []

    def evacuate(line: object, numbers: object, timeout_s: float) -> int:
        steps.append("evacuate")
        if steps.count("evacuate") == 2 and not is_empty:
            raise Failure("t-0 has no leader")
        return 1

    for name in ("quorum_overview", "check_evacuation", "_leave_quorum", "_await_absence", "_unregister"):
        monkeypatch.setattr(membership, name, lambda *_, name=name: steps.append(name))
    monkeypatch.setattr(membership, "evacuate", evacuate)
    monkeypatch.setattr(membership, "read_image", lambda line: image_of([("", "h")] * 3))
    monkeypatch.setattr(draining, "excluded_brokers", lambda line: [])
    monkeypatch.setattr(draining, "_alter_excluded", lambda line, operation, _: steps.append(operation.name))
    for number in (1, 3):
        BrokerHome(tmp_path, number).write({"listeners": "PLAINTEXT://127.0.0.1:1"}, ())
    monkeypatch.setattr(BrokerHome, "process", lambda home: Process(0, "") if home.id == 1 else None)
    before = ["quorum_overview", "check_evacuation", "APPEND", "evacuate", "_leave_quorum", "_await_absence"]
    if is_empty:
        assert remove_broker(tmp_path, 3, PATIENCE_S) == (2, tmp_path / "removed-broker-3")
        assert steps == [*before, "evacuate", "_unregister", "SUBTRACT"]
    else:
        with pytest.raises(Failure, match="t-0 has no leader"):
            remove_broker(tmp_path, 3, PATIENCE_S)
        assert steps == [*before, "evacuate", "SUBTRACT"], "it may receive replicas again"
        assert BrokerHome(tmp_path, 3).path.exists()


def place(running: Cluster, topic: str, *replicas: int) -> None:
    """Create a topic of one partition, which the first of `replicas` leads."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[list(replicas)])])[topic].result(timeout=60)
    running.wait_for_isr(topic)


def test_partitions_without_any_remaining_replica_are_not_waited_for() -> None:
    with cluster(brokers=3) as running:
        gone = next(broker for broker in running.ids if broker != running.controller)
        place(running, "alone", gone)
        running.kill(gone)
        running.wait_until(lambda: running.leader("alone") is None)
        with pytest.raises(Failure, match=rf"alone-0 has no leader .* of its replicas \({gone}\)"):
            forget_broker(running.bootstrap, gone, PATIENCE_S)


def test_moves_of_an_earlier_try_are_waited_for() -> None:
    """As after Ctrl-C in `penstock broker remove`."""
    with cluster(brokers=5) as running:
        leader = running.controller
        assert leader is not None
        gone, stays, taker, _ = (broker for broker in running.ids if broker != leader)
        place(running, "t", leader, gone, stays)
        running.kill(gone)
        running.wait_for_isr("t", size=2)
        running.partition(leader, taker)
        where = running.address(leader)
        with DirectLine(where, PATIENCE_S) as line:
            start_moves(line, [Move(TopicPartition("t", 0), [leader, stays, taker])])
        with pytest.raises(Failure, match=r"1 of 1 partitions still move after 0.1 s, and continue"):
            forget_broker(where, gone, 0.1)
        running.heal()
        assert forget_broker(where, gone, PATIENCE_S) == 0
        assert running.wait_for_isr("t") == sorted([leader, stays, taker])
