"""A throttle that its client has left behind ends on a cluster of real brokers, and not before its moves."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.alteration import alter_configs, broker_resource, config_entries, topic_resource
from penstock.cli.cluster.moves import Move, ongoing_moves, start_moves
from penstock.cli.cluster.throttles import set_throttle
from penstock.cli.connection import Cluster as Connection
from penstock.cli.direct import DirectLine
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import CLIENT, produce

LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"


def own(running: Cluster) -> dict[str, dict[str, str]]:
    """The configs that are set of the brokers and of the topic."""
    connection = Connection(running.bootstrap, 60)
    resources = {"t": topic_resource("t")} | {str(n): broker_resource(str(n)) for n in running.ids}
    return {
        name: {
            e["name"]: e["value"]
            for e in config_entries(connection, resource)
            if e["source"] in ("DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG")
        }
        for name, resource in resources.items()
    }


def test_a_throttle_ends_after_the_moves_and_restores_the_operators_values() -> None:
    with cluster(brokers=3, config={"min.insync.replicas": "1"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1]])])["t"].result(60)
        produce(running, "t", *[bytes(500_000)] * 6)
        connection = Connection(running.bootstrap, 60)
        alter_configs(connection, broker_resource("1"), {LEADER: "900000000", FOLLOWER: "3"})
        alter_configs(connection, topic_resource("t"), {REPLICAS: "0:3"})
        before = own(running)
        with DirectLine(running.bootstrap, 60) as line:
            move = Move(TopicPartition("t", 0), [1, 2])
            set_throttle(line, [move], 1)
            assert [own(running)[str(n)][LEADER] for n in running.ids] == ["1"] * 3
            # Between the throttle and the moves: a moment for clients, 30 s at most.
            running.advance(20)
            assert own(running)["t"][REPLICAS] == "*"
            start_moves(line, [move])
            running.advance(60)
            assert list(ongoing_moves(line)) == [move.partition]
            assert own(running)["2"][FOLLOWER] == "1"
            # An operator changes the rate of one broker, and the moves end.
            alter_configs(connection, broker_resource("2"), {FOLLOWER: "800000000"})
            alter_configs(connection, broker_resource("1"), {LEADER: "800000000"})
            running.wait_until(lambda: not ongoing_moves(line))
            assert own(running)["t"][REPLICAS] == "*"
            running.advance(40)
            given_back = {**before["1"], LEADER: "800000000"}
            running.wait_until(lambda: own(running)["1"] == given_back)
            left = own(running)
            assert (left["t"], left["2"], left["3"]) == (before["t"], {FOLLOWER: "800000000"}, {})


def test_a_throttle_without_moves_ends() -> None:
    with cluster(brokers=2) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        before = own(running)
        with DirectLine(running.bootstrap, 60) as line:
            set_throttle(line, [Move(TopicPartition("t", 0), [1, 2])], 1000)
        assert own(running) != before
        running.advance(20)
        assert own(running) != before
        running.advance(30)
        running.wait_until(lambda: own(running) == before)
