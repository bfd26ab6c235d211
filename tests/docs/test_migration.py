"""The programs of the migration guide run against both systems, there and back.

`make migration` uses Apache Kafka as the other system, `make test` a second Penstock broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab import MissingTool
from lab.apache_kafka import apache_kafka
from penstock.testing import broker
from tests.docs.walkthrough import blocks

PAGE = "docs/migrating-from-kafka.md"
WITH_KAFKA = bool(os.environ.get("PENSTOCK_MIGRATION"))
WAIT_S = 60


@pytest.fixture
def systems(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the old system and of the new one."""
    config = {"group.initial.rebalance.delay.ms": "0"}
    with ExitStack() as running:
        new = running.enter_context(broker(config=config)).bootstrap
        if not WITH_KAFKA:
            yield running.enter_context(broker(config=config)).bootstrap, new
            return
        try:
            kafka = apache_kafka(tmp_path, config)
        except MissingTool as missing:
            pytest.skip(f"no Apache Kafka: {missing}")
        kafka.start()
        running.callback(kafka.stop)
        yield kafka.bootstrap, new


def create(address: str, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[topic.topic].result(WAIT_S)


def program() -> dict[str, Any]:
    """All blocks of the page, as one program."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):
        exec(block.code, names)
    return names


def direct(names: dict[str, Any], source: str, target: str, application: str) -> None:
    names["SOURCE"], names["TARGET"], names["BOOTSTRAP"] = source, target, application


def test_an_application_moves_and_comes_back(systems: tuple[str, str]) -> None:
    old, new = systems
    names = program()
    direct(names, old, new, application=old)
    topic = NewTopic("orders", 2, 1, config={"retention.ms": "86400000"})
    create(old, topic)
    names["send"](20)
    processed = set(names["receive"](20))
    names["send"](5)

    names["copy_topics"](1)
    assert names["copy_records"]("orders") == 25
    assert names["copy_records"]("orders") == 0
    assert names["differences"]("orders") == []
    names["copy_offsets"]("billing", "orders")

    direct(names, old, new, application=new)
    assert sorted(names["receive"](5)) == [f"order {number}" for number in range(5)]
    assert len(processed) == 20
    names["send"](3)
    assert len(names["receive"](3)) == 3
    names["send"](2)

    # rollback
    direct(names, new, old, application=old)
    assert names["copy_records"]("orders") == 5
    assert names["differences"]("orders") == []
    names["copy_offsets"]("billing", "orders")
    assert sorted(names["receive"](2)) == ["order 0", "order 1"]


def test_a_lost_record_is_a_difference(systems: tuple[str, str]) -> None:
    old, new = systems
    names = program()
    direct(names, old, new, application=old)
    for address in systems:
        create(address, NewTopic("orders", 1, 1))
    names["send"](3)
    assert names["differences"]("orders") == [(0, 0), (0, 1), (0, 2)]
    assert names["copy_records"]("orders") == 3
    assert names["differences"]("orders") == []


def test_records_that_the_target_refuses_are_not_committed(systems: tuple[str, str]) -> None:
    old, new = systems
    names = program()
    direct(names, old, new, application=old)
    create(old, NewTopic("orders", 1, 1))
    create(new, NewTopic("orders", 1, 1, config={"max.message.bytes": "1"}))
    names["send"](3)
    with pytest.raises(RuntimeError, match=f"{new} has not acknowledged all records: .*MSG_SIZE_TOO_LARGE"):
        names["copy_records"]("orders")
    consumer = Consumer({"bootstrap.servers": old, "group.id": "migration"})
    (position,) = consumer.committed([TopicPartition("orders", 0)], timeout=WAIT_S)
    consumer.close()
    assert position.offset < 0


def test_only_internal_topics_are_left_out(systems: tuple[str, str]) -> None:
    old, new = systems
    names = program()
    direct(names, old, new, application=old)
    create(old, NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"}))
    create(old, NewTopic("__internal", 1, 1))
    names["copy_topics"](1)
    assert set(AdminClient({"bootstrap.servers": new}).list_topics(timeout=WAIT_S).topics) == {"_schemas"}


def test_records_that_are_not_sent_back_are_committed_in_large_steps() -> None:
    names = program()
    commits: list[int] = []

    class Committing:
        """Stands for a consumer, which commits, and for a producer without records."""

        def __init__(self, settings: object) -> None: ...

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            commits.append(offsets[0].offset)

        def flush(self, timeout: int) -> int:
            return 0

        def close(self) -> None: ...

    class Copied:
        """A record that came from the other system."""

        def __init__(self, offset: int) -> None:
            self._offset = offset

        def partition(self) -> int:
            return 0

        def offset(self) -> int:
            return self._offset

        def headers(self) -> list[tuple[str, bytes]]:
            return [("source-offset", b"0")]

    consumer = Committing({})
    names["records"] = lambda *options: ((consumer, Copied(offset)) for offset in range(2500))
    names["Consumer"] = names["Producer"] = Committing
    assert names["copy_records"]("orders") == 0
    assert commits == [1000, 2000, 2500]
