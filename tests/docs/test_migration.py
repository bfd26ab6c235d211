"""The programs of the migration guide run against both systems, there and back.

The other system is a second Penstock broker, and Apache Kafka where there is one. All tests share Kafka's
broker, so each has a topic of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import broker
from tests.docs.tutorials import check, page, steps
from tests.docs.walkthrough import Shell, blocks

PAGE = "docs/migrating-from-kafka.md"
WAIT_S = 60


class Systems(NamedTuple):
    """The addresses of both systems, and the name of the test's topic."""

    old: str
    new: str
    topic: str


CONFIG = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.process)])
def old(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the other system."""
    if request.param == "kafka":
        yield request.getfixturevalue("real_kafka")
    else:
        with broker(config=CONFIG) as running:
            yield running.bootstrap


@pytest.fixture
def systems(old: str) -> Iterator[Systems]:
    with broker(config=CONFIG) as new:
        yield Systems(old, new.bootstrap, f"orders-{uuid4().hex[:8]}")


def create(address: str, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])[topic.topic].result(WAIT_S)


def program(topic: str = "orders") -> dict[str, Any]:
    """All blocks of the page, as one program."""
    names: dict[str, Any] = {}
    for block in blocks(PAGE, "python"):
        exec(block.code.replace('"orders"', f'"{topic}"'), names)
    return names


def direct(names: dict[str, Any], source: str, target: str, application: str) -> None:
    names["SOURCE"], names["TARGET"], names["BOOTSTRAP"] = source, target, application


def test_an_application_moves_and_comes_back(systems: Systems) -> None:
    old, new, orders = systems
    names = program(orders)
    direct(names, old, new, application=old)
    topic = NewTopic(orders, 2, 1, config={"retention.ms": "86400000"})
    create(old, topic)
    names["send"](20)
    processed = set(names["receive"](20))
    names["send"](5)

    names["copy_topics"](1)
    assert names["copy_records"](orders) == 25
    assert names["copy_records"](orders) == 0
    assert names["differences"](orders) == []
    names["copy_offsets"]("billing", orders)

    direct(names, old, new, application=new)
    assert sorted(names["receive"](5)) == [f"order {number}" for number in range(5)]
    assert len(processed) == 20
    names["send"](3)
    assert len(names["receive"](3)) == 3
    names["send"](2)

    # rollback
    direct(names, new, old, application=old)
    assert names["copy_records"](orders) == 5
    assert names["differences"](orders) == []
    names["copy_offsets"]("billing", orders)
    assert sorted(names["receive"](2)) == ["order 0", "order 1"]


def test_a_lost_record_is_a_difference(systems: Systems) -> None:
    old, new, orders = systems
    names = program(orders)
    direct(names, old, new, application=old)
    for address in (old, new):
        create(address, NewTopic(orders, 1, 1))
    names["send"](3)
    assert names["differences"](orders) == [(0, 0), (0, 1), (0, 2)]
    assert names["copy_records"](orders) == 3
    assert names["differences"](orders) == []


def test_records_that_the_target_refuses_are_not_committed(systems: Systems) -> None:
    old, new, orders = systems
    names = program(orders)
    direct(names, old, new, application=old)
    create(old, NewTopic(orders, 1, 1))
    create(new, NewTopic(orders, 1, 1, config={"max.message.bytes": "1"}))
    names["send"](3)
    with pytest.raises(RuntimeError, match=f"{new} has not acknowledged all records: .*MSG_SIZE_TOO_LARGE"):
        names["copy_records"](orders)
    consumer = Consumer({"bootstrap.servers": old, "group.id": "migration"})
    (position,) = consumer.committed([TopicPartition(orders, 0)], timeout=WAIT_S)
    consumer.close()
    assert position.offset < 0


def test_only_internal_topics_are_left_out(systems: Systems) -> None:
    old, new, orders = systems
    names = program(orders)
    direct(names, old, new, application=old)
    schemas, internal = f"_schemas-{orders}", f"__internal-{orders}"
    create(old, NewTopic(schemas, 1, 1, config={"cleanup.policy": "compact"}))
    create(old, NewTopic(internal, 1, 1))
    names["copy_topics"](1)
    copied = AdminClient({"bootstrap.servers": new}).list_topics(timeout=WAIT_S).topics
    assert schemas in copied
    assert internal not in copied


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


def test_the_tutorial(
    old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`penstock backup` and `penstock restore` move an application, as docs/tutorials/from-kafka.md shows."""
    pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
    monkeypatch.chdir(tmp_path)
    new = ""
    with ExitStack() as running:
        shell = Shell(monkeypatch, capfd)
        shell.use(old)
        for block, expected in steps(page("from-kafka")):
            if block.code.startswith("penstock up"):
                new = running.enter_context(broker(config=CONFIG, data=tmp_path / "restored")).bootstrap
                continue
            block = block._replace(code=block.code.replace("127.0.0.1:9192", new))
            check(block, shell.run(block), expected)
