"""Topics through the command, against a broker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.running import Command, lines, run


@pytest.mark.process
def test_a_missing_broker_is_reported_at_once_and_only_once() -> None:
    done = run("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert lines(done.stderr) == [
        "penstock: no broker answers at 127.0.0.1:1: start one with `penstock up`, "
        "or name another with --bootstrap"
    ]


def test_a_topics_life(penstock: Command) -> None:
    created = penstock("topic", "create", "life", "--partitions", "2", "--config", "retention.ms=5000")
    assert (created.returncode, created.stdout) == (0, "created life\n")

    again = penstock("topic", "create", "life")
    assert again.returncode == 1
    assert again.stderr.startswith("penstock: life: ")
    assert "--if-not-exists" in again.stderr
    assert penstock("topic", "create", "life", "--if-not-exists").stdout == "exists life\n"

    listed = json.loads(penstock("topic", "list", "--json").stdout)
    assert {"topic": "life", "partitions": 2, "replicas": 1} in listed

    assert penstock("topic", "alter", "life", "--partitions", "3").returncode == 0
    assert penstock("topic", "alter", "life", "--partitions", "1").returncode == 1

    (described,) = json.loads(penstock("topic", "describe", "life", "--json").stdout)
    assert described["configs"] == {"retention.ms": "5000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all((p["start"], p["end"]) == (0, 0) for p in described["partitions"])
    times = [datetime.fromisoformat(described[name]) for name in ("created", "changed")]
    assert times[0] <= times[1] <= datetime.now(UTC)
    shown = penstock("topic", "describe", "life").stdout
    assert "life  id" in shown
    assert f"created {described['created']}  changed {described['changed']}\n" in shown
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", described["id"])

    assert penstock("topic", "delete", "life").stdout == "deleted life\n"
    assert penstock("topic", "delete", "life").returncode == 1
    assert penstock("topic", "delete", "life", "--if-exists").stdout == "missing life\n"
    assert penstock("topic", "describe", "life").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [("create", "t", "-p", "-3"), ("create", "t", "--replication-factor", "-2"), ("alter", "t", "-p", "-1")],
)
def test_numbers_that_cannot_be(penstock: Command, arguments: tuple[str, ...]) -> None:
    refused = penstock("topic", *arguments)
    assert refused.returncode == 2
    assert "is not in the range" in refused.stderr


def test_a_name_that_cannot_be(penstock: Command) -> None:
    refused = penstock("topic", "create", "no spaces, please")
    assert refused.returncode == 1
    assert "choose another name" in refused.stderr


def test_validate_only_creates_nothing(penstock: Command) -> None:
    assert penstock("topic", "create", "checked", "--validate-only").stdout == "valid checked\n"
    assert "checked" not in penstock("topic", "list").stdout
    refused = penstock("topic", "create", "checked", "--validate-only", "--config", "retention.msx=1")
    assert refused.returncode == 1
    assert "retention.ms" in refused.stderr


def test_describe_live_shows_rates_and_the_lag_of_groups(
    penstock: Command, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.cluster.rates._INTERVAL_S", 0.05)
    producer = Producer({"bootstrap.servers": broker})
    for _ in range(5):
        producer.produce("lively", b"x", partition=0)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("lively", 0, 2)], asynchronous=False)
    consumer.close()
    (described,) = json.loads(penstock("topic", "describe", "lively", "--live", "--json").stdout)
    (group,) = described["groups"]
    assert (group["group"], group["lag"]) == ("readers", 3)
    assert (described["records_per_s"], described["bytes_per_s"]) == (0, 0)
    shown = penstock("topic", "describe", "lively", "--live").stdout
    assert "records/s" in shown and "readers" in shown
    assert "records/s" not in penstock("topic", "describe", "lively").stdout
