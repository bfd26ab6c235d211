"""A topic as target and as source of a bridge, on a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.errors import BridgeError, WriteFailed
from penstock.bridge.message import Bridged
from penstock.bridge.topic import TopicSource, TopicTarget
from penstock.bridge.window import Counts
from penstock.testing import broker
from tests.bridge.fakes import FakeSource, FakeTarget, message
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic

WAIT_S = 60
AT_END = CopySettings(exit_at_end=True, poll_s=0.05, backoff_s=0.01, in_flight=3)
_numbers = count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": "0", "penstock.log.level": "error"}
    with broker(config=config) as running:
        yield running.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"bridged-{next(_numbers)}"
    with RawClient(bootstrap) as client:
        create_topic(client, name)
    return name


def run(work: Callable[[], Awaitable[Counts]]) -> Counts:
    async def limited() -> Counts:
        async with asyncio.timeout(WAIT_S):
            return await work()

    return asyncio.run(limited())


def read(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, dict[str, bytes]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = [consumer.poll(WAIT_S) for _ in range(count)]
    consumer.close()
    return [(each.value(), dict(each.headers())) for each in messages]


def test_messages_are_written_with_their_headers_and_then_acknowledged(bootstrap: str, topic: str) -> None:
    source = FakeSource(map(message, range(5)))
    counts = run(lambda: Copier(source, TopicTarget(bootstrap, topic), AT_END).run())
    assert counts == Counts(received=5, written=5, acknowledged=5)
    found = read(bootstrap, topic, 5)
    assert [value for value, _ in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert found[0][1] == {
        "penstock-bridge-id": b"S:0",
        "penstock-bridge-source": b"nats",
        "penstock-bridge-place": b"orders",
    }


def test_a_message_that_the_broker_refuses_is_not_acknowledged(bootstrap: str) -> None:
    name = f"small-{next(_numbers)}"
    with RawClient(bootstrap) as client:
        create_topic(client, name, configs={"max.message.bytes": "1"})
    source = FakeSource([message(0)])
    with pytest.raises(BridgeError, match="refuses message S:0 of source: MSG_SIZE_TOO_LARGE"):
        run(lambda: Copier(source, TopicTarget(bootstrap, name), AT_END).run())
    assert source.acknowledged == []


def test_records_are_copied_once_and_again_only_if_they_failed(bootstrap: str, topic: str) -> None:
    first = FakeSource(map(message, range(5)))
    run(lambda: Copier(first, TopicTarget(bootstrap, topic), AT_END).run())
    failures = iter([WriteFailed("timed out", retriable=True)])
    stored: list[Bridged] = []

    def answer(each: Bridged) -> WriteFailed | None:
        error = next(failures, None) if each.body == b"2" else None
        if error is None:
            stored.append(each)
        return error

    class Elsewhere(FakeTarget):
        system = "sqs"

    def back() -> Awaitable[Counts]:
        source = TopicSource(bootstrap, topic, f"group-{topic}")
        return Copier(source, Elsewhere(answer), AT_END).run()

    counts = run(back)
    assert sorted(each.body or b"" for each in stored) == [b"0", b"1", b"2", b"3", b"4"]
    assert stored[0].id == f"{topic}-0:0"
    assert (counts.written, counts.retried, counts.acknowledged) == (5, 1, 5)
    assert run(back).received == 0, "the offsets are committed"


def test_records_that_came_from_the_system_do_not_go_back(bootstrap: str, topic: str) -> None:
    run(lambda: Copier(FakeSource([message(0)]), TopicTarget(bootstrap, topic), AT_END).run())

    class Origin(FakeTarget):
        system = "nats"

    target = Origin()
    source = TopicSource(bootstrap, topic, f"group-{topic}")
    counts = run(lambda: Copier(source, target, AT_END).run())
    assert (target.stored, counts.skipped, counts.acknowledged) == ([], 1, 1)
