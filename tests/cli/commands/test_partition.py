"""`penstock partition reassign` while replicas are on their way, on a cluster in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.alteration import alter_configs, broker_resource, config_entries, topic_resource
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.connection import Cluster as Connection
from penstock.cli.direct import DirectLine
from penstock.testing import Cluster, cluster
from tests.cli.running import run_here
from tests.testing.cluster_clients import CLIENT, produce

#: more than the leader gives at once, so that the last of it waits for what the throttle allows
VALUES = [bytes(500_000)] * 6


def reassign(running: Cluster, *arguments: str) -> int:
    command = ["partition", "reassign", *arguments, "--bootstrap", running.bootstrap]
    return run_here(*command)


def throttled(running: Cluster, *topics: str) -> set[str]:
    """The topics and brokers (as numbers) that have a throttle."""
    connection = Connection(running.bootstrap, 60)
    names = {name: topic_resource(name) for name in topics} | {
        str(broker): broker_resource(str(broker)) for broker in running.ids
    }
    return {
        name
        for name, resource in names.items()
        for entry in config_entries(connection, resource)
        if ".replication.throttled." in entry["name"] and entry["source"].startswith("DYNAMIC")
    }


def plan_for(running: Cluster, topic: str, path: Path) -> Path:
    """A plan that gives a partition of one replica another one."""
    here = running.wait_for_leader(topic)
    there = here % len(running.ids) + 1
    partitions = [{"topic": topic, "partition": 0, "replicas": [here, there]}]
    plan = path / f"{topic}.json"
    plan.write_text(json.dumps({"partitions": partitions}))
    return plan


def test_cancelled_moves_are_no_longer_throttled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(brokers=3, config={"min.insync.replicas": "1"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        for created in admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)]).values():
            created.result(timeout=60)
        plans = [str(plan_for(running, topic, tmp_path)) for topic in ("a", "b")]
        for topic, plan in zip(("a", "b"), plans, strict=True):
            produce(running, topic, *VALUES)
            assert reassign(running, "execute", plan, "--throttle", "1") == 0
        with DirectLine(running.bootstrap, 60) as line:
            overview = cluster_overview(line)
        assert (overview["moving"], overview["under_replicated"]) == (2, [])
        # Each broker says what it is throttled by once it has applied the change.
        running.wait_until(lambda: throttled(running, "a", "b") == {"a", "b", "1", "2", "3"})

        assert reassign(running, "cancel", plans[0]) == 0
        assert running.isr("a") == [running.leader("a")]
        running.wait_until(lambda: throttled(running, "a", "b") == {"b", "1", "2", "3"})
        assert reassign(running, "cancel") == 0
        running.wait_until(lambda: throttled(running, "a", "b") == set())
        assert capsys.readouterr().out.count("cancelled 1 moves") == 2


def test_a_plan_that_is_refused_leaves_no_throttle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 99]}]}))
    with cluster(brokers=2) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        admin.create_topics([NewTopic("a", 1, 1)])["a"].result(timeout=60)
        assert reassign(running, "execute", str(plan), "--throttle", "1MB") == 1
        assert "99" in capsys.readouterr().err
        assert throttled(running, "a") == set()


def test_the_throttle_of_an_operator_is_back_after_the_moves(tmp_path: Path) -> None:
    """It was overwritten by `--throttle`, and removed by `verify`."""
    rate = "leader.replication.throttled.rate"
    with cluster(brokers=2, config={"min.insync.replicas": "1"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        admin.create_topics([NewTopic("a", 1, 1)])["a"].result(timeout=60)
        connection = Connection(running.bootstrap, 60)
        alter_configs(connection, broker_resource("1"), {rate: "900000000"})
        plan = str(plan_for(running, "a", tmp_path))
        assert reassign(running, "execute", plan, "--throttle", "1MB", "--wait") == 0

        def rates() -> dict[str, str]:
            entries = config_entries(connection, broker_resource("1"))
            return {e["name"]: e["value"] for e in entries if e["source"] == "DYNAMIC_BROKER_CONFIG"}

        running.wait_until(lambda: rates() == {rate: "900000000"})
        assert throttled(running, "a") == {"1"}
