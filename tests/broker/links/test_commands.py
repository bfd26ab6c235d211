"""`penstock link`, against two clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at
from tests.cli.running import run_here


def send(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, b"%d" % n)
    assert producer.flush(30) == 0


def test_a_link_from_its_creation_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "west.properties"
    config.write_text("security.protocol=PLAINTEXT\nsasl.password=secret\nclient.id=x\n")
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        at = ("--bootstrap", destination.bootstrap)

        def command(*arguments: str, fails: bool = False) -> str:
            assert (run_here("link", *arguments, *at) != 0) == fails
            shown = capsys.readouterr()
            return shown.err if fails else shown.out

        create(source.bootstrap, "orders", 2)
        create(source.bootstrap, "payments")
        send(source.bootstrap, "payments", 5)
        assert command("list", "--json") == "[]\n"
        options = ("--topics", "*", "--groups", "*", "--interval-ms", "200", "--config", str(config))
        command("create", "west", "--from", source.bootstrap, *options)
        assert "link west exists" in command("create", "west", "--from", source.bootstrap, fails=True)
        ends_at(destination.bootstrap, "payments", 5)
        ends_at(destination.bootstrap, "orders", 0, 1)
        (listed,) = json.loads(command("list", "--json"))
        assert (listed["link"], listed["topics"], listed["partitions"], listed["error"]) == ("west", 2, 3, "")
        described = command("describe", "west", "--json")
        assert "secret" not in described
        found = json.loads(described)
        assert found["configs"]["sasl.password"] == "(hidden)"
        rows = [row for row in found["partitions"] if row["topic"] == "payments"]
        assert [(row["state"], row["end_offset"]) for row in rows] == [("mirroring", 5)]
        assert "paused" in command("pause", "west")
        assert json.loads(command("list", "--json"))[0]["state"] == "paused"
        command("resume", "west")
        assert "name topics, or give --all" in command("promote", "west", fails=True)
        assert "topic nothing is not mirrored" in command("promote", "west", "nothing", fails=True)
        assert "nothing is missing" in command("promote", "west", "payments")
        assert "link west mirrors 1 topics (orders)" in command("delete", "west", fails=True)
        failed_over = json.loads(command("failover", "west", "--all", "--json"))
        assert [(row["topic"], row["end_offset"]) for row in failed_over] == [("orders", 0), ("orders", 0)]
        assert "deleted" in command("delete", "west")
        assert command("list", "--json") == "[]\n"
        assert "there is no link west" in command("describe", "west", fails=True)
        send(destination.bootstrap, "payments", 1)


def test_a_forced_deletion_opens_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        create(source.bootstrap, "orders")
        send(source.bootstrap, "orders", 3)
        at = ("--bootstrap", destination.bootstrap)
        run_here("link", "create", "west", "--from", source.bootstrap, "--interval-ms", "200", *at)
        ends_at(destination.bootstrap, "orders", 3)
        assert run_here("link", "delete", "west", "--force", *at) == 0
        send(destination.bootstrap, "orders", 2)
        ends_at(destination.bootstrap, "orders", 5)
