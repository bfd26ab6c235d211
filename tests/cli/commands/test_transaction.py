"""Transactions through the command: listed, described, found hanging and aborted, against a broker."""

from __future__ import annotations

import json
from functools import partial
from itertools import count

import pytest
from confluent_kafka import Producer

from penstock.model.addresses import parse_bootstrap
from penstock.reading.connection import Cluster, Endpoint
from penstock.testing import broker
from penstock.twophase.prepared import PreparedTransactions
from tests.cli.running import WAIT_S, Command, run

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


def test_a_two_phase_transaction_is_listed_as_an_orphan_and_ended() -> None:
    with broker(config={"transaction.two.phase.commit.enable": "true"}) as running:
        penstock = partial(run, bootstrap=running.bootstrap)
        penstock("topic", "create", "loaded")
        cluster = Cluster(Endpoint(tuple(parse_bootstrap(running.bootstrap))))
        producers = []
        for name in ("load-1", "load-2"):
            producers.append(open_transaction(running.bootstrap, "loaded", name))
            assert PreparedTransactions(cluster).prepare(name) is not None
        ordinary = open_transaction(running.bootstrap, "loaded", "ordinary")

        assert penstock("transaction", "list", "--orphans").stderr.strip() == (
            "each two-phase transaction has an outcome"
        )
        young = ("transaction", "list", "--orphans", "--longer-than", "0", "--json")
        listed = json.loads(penstock(*young).stdout)
        assert [(row["transactional_id"], row["partitions"]) for row in listed] == [
            ("load-1", "loaded-0"),
            ("load-2", "loaded-0"),
        ]
        (found,) = json.loads(penstock("transaction", "describe", "load-1", "--json").stdout)
        assert found["two_phase"] is True
        (found,) = json.loads(penstock("transaction", "describe", "ordinary", "--json").stdout)
        assert found["two_phase"] is False

        assert "--commit or --abort" in penstock("transaction", "end", "load-1").stderr
        ended = penstock("transaction", "end", "load-1", "--commit")
        assert ended.stdout.strip() == "committed the transaction of 'load-1'"
        ended = penstock("transaction", "end", "load-2", "--abort")
        assert ended.stdout.strip() == "aborted the transaction of 'load-2'"
        again = penstock("transaction", "end", "load-1", "--commit")
        assert "has no open transaction" in again.stderr
        assert penstock("transaction", "end", "ordinary", "--commit").returncode == 0
        assert penstock(*young).stdout.strip() == "[]"
        cluster.close()
        del producers, ordinary
