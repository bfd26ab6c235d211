"""Transactions through the command: listed, described, found hanging and aborted, against a broker."""

from __future__ import annotations

import json
from itertools import count

import pytest
from confluent_kafka import Producer

from tests.cli.running import WAIT_S, Command

_numbers = count()


@pytest.fixture
def topic(penstock: Command) -> str:
    name = f"transactional-{next(_numbers)}"
    penstock("topic", "create", name)
    return name


def open_transaction(broker: str, topic: str, name: str) -> Producer:
    settings = {"bootstrap.servers": broker, "transactional.id": name, "log_level": 0}
    producer = Producer(settings | {"error_cb": lambda _: None})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(WAIT_S)
    return producer


def test_transactions(penstock: Command, broker: str, topic: str) -> None:
    producer = open_transaction(broker, topic, f"cli-{topic}")
    listed = json.loads(penstock("transaction", "list", "--state", "Ongoing", "--json").stdout)
    assert f"cli-{topic}" in [row["transactional_id"] for row in listed]
    (found,) = json.loads(penstock("transaction", "describe", f"cli-{topic}", "--json").stdout)
    assert (found["state"], found["partitions"]) == ("Ongoing", f"{topic}-0")
    hanging = penstock("transaction", "find-hanging", "--topic", topic, "--max-transaction-timeout", "-1")
    assert hanging.stderr.strip() == "no transaction hangs"

    aborted = penstock("transaction", "abort", topic, "0", "0")
    assert (aborted.returncode, topic in aborted.stdout) == (0, True)
    again = penstock("transaction", "abort", topic, "0", "0")
    assert again.returncode != 0
    assert "no transaction is open" in again.stderr
    producer.abort_transaction(WAIT_S)


def test_an_unknown_id(penstock: Command) -> None:
    result = penstock("transaction", "describe", "no-such-id")
    assert result.returncode != 0
    assert "there is no transactional id" in result.stderr
