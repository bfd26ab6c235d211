"""Messages whose key was processed are skipped, by the next consumer too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from penstock.client import Admin, Consumer, Message, MisusedClient, Producer, Record, Transaction
from penstock.client.errors import ClientClosed
from penstock.client.idempotent_keys import IdempotentKey, IdempotentKeys
from penstock.client.seen_topic import SeenTopics, seen_topic_name
from penstock.model.ids import TopicPartition
from penstock.testing import broker
from tests.client.conftest import QUICK_GROUPS
from tests.interop.isolation import read

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(config={**QUICK_GROUPS, "transaction.state.log.num.partitions": "4"}) as running:
        yield running.bootstrap


def record(number: int, key: str) -> Record:
    return Record(value=str(number), headers={"request-id": key}, partition=0)


async def send(bootstrap: str, topic: str, *records: Record) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, records)


async def copy_until(bootstrap: str, name: str, last: bytes, **arguments: Any) -> list[bytes]:
    """Copy messages until one is handled; the values that the handler got."""
    style = arguments.pop("style", "fifo")
    handled: list[bytes] = []
    consumer = Consumer(
        bootstrap, name, group=name, delivery="exactly_once", **{"idempotent_key": "request-id", **arguments}
    )

    async def handle(message: Message, transaction: Transaction) -> None:
        handled.append(message.value)
        await transaction.send(f"{name}-out", message.value, partition=0)
        if message.value == last:
            await consumer.close()

    async with consumer:
        await consumer.run(handle, style=style)
    return handled


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_a_key_is_processed_once_across_restarts(bootstrap: str, name: str, style: str) -> None:
    async def play() -> None:
        await send(bootstrap, name, record(0, "a"), record(1, "b"), record(2, "a"), record(3, "c"))
        await copy_until(bootstrap, name, b"3", style=style)
        await send(bootstrap, name, record(4, "b"), record(5, "c"), record(6, "d"))
        await copy_until(bootstrap, name, b"6", style=style)
        async with Admin(bootstrap) as admin:
            topics = await admin.topics()
            seen = f"{name}.{name}.seen-keys"
            assert topics[seen].partitions == topics[name].partitions
            assert (await admin.config(seen))["cleanup.policy"] == "compact,delete"

    asyncio.run(asyncio.wait_for(play(), 60))
    assert sorted(read(bootstrap, f"{name}-out")) == [b"0", b"1", b"3", b"6"]


def test_a_function_names_the_key(bootstrap: str, name: str) -> None:
    def first_digit(message: Message) -> str | None:
        return None if message.value == b"" else message.value.decode()[0]

    async def play() -> None:
        values = ["10", "11", "", "", "20"]
        await send(bootstrap, name, *(Record(value=value, partition=0) for value in values))
        handled = await copy_until(bootstrap, name, b"20", idempotent_key=first_digit)
        assert handled == [b"10", b"", b"", b"20"]

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_load_waits_for_transactions_of_earlier_owners(bootstrap: str, name: str) -> None:
    """Their keys are in the log before the outcome is known: they count if it is a commit."""

    async def load() -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        topics = SeenTopics(bootstrap, {}, name, HOUR_MS)
        await topics.load(TopicPartition(name, 0), found.__setitem__, lambda: False)
        return found

    async def play() -> None:
        await send(bootstrap, name, record(0, "a"))
        assert await load() == {}
        seen = seen_topic_name(name, name)
        async with Producer(bootstrap, transactional_id=name) as producer:
            for outcome in ("aborted", "committed"):
                transaction = producer.transaction()
                tx = await transaction.__aenter__()
                await tx.send(seen, b"0", key=outcome, partition=0)
                await producer.flush()
                loading = asyncio.create_task(load())
                await asyncio.wait([loading], timeout=0.5)
                assert not loading.done()
                if outcome == "committed":
                    await transaction.__aexit__(None, None, None)
                    assert list(await loading) == [b"committed"]
                else:
                    await transaction.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
                    assert await loading == {}

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_load_that_is_closed_fails(bootstrap: str, name: str) -> None:
    """Keys that were not read would make duplicates of their messages."""

    async def play() -> None:
        await send(bootstrap, name, record(0, "a"))
        async with Producer(bootstrap) as producer:
            await producer.send(seen_topic_name(name, name), b"0", key="a", partition=0)
        with pytest.raises(ClientClosed):
            await SeenTopics(bootstrap, {}, name, HOUR_MS).load(
                TopicPartition(name, 0), lambda key, at_ms: None, lambda: True
            )

    asyncio.run(asyncio.wait_for(play(), 60))


class Topics:
    """Has the same keys in every partition."""

    def __init__(self, **keys: int) -> None:
        self.keys = keys
        self.loads: list[TopicPartition] = []

    def name(self, topic: str) -> str:
        return f"{topic}-seen"

    async def load(self, partition: TopicPartition, sink: Any, is_closing: Any) -> None:
        self.loads.append(partition)
        for key, at_ms in self.keys.items():
            sink(key.encode(), at_ms)


class Sent:
    """A transaction that notes what is written."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int | None, bytes]] = []

    async def send_raw(self, topic: str, record: Record) -> None:
        self.records.append((topic, record.partition, record.key))


class Arrived:
    def __init__(self, offset: int, value: bytes) -> None:
        self.topic_partition = TopicPartition("t", 2)
        self.offset = offset
        self.value = value


def keys_of(topics: Topics, limit: int = 10, now_ms: int = 1000) -> IdempotentKeys:
    by_value: IdempotentKey = lambda message: message.value  # noqa: E731
    return IdempotentKeys(by_value, 500, limit, cast(Any, topics), lambda: False, lambda: now_ms)


def claim(keys: IdempotentKeys, value: bytes, offset: int = 0) -> bool:
    return keys.claim(cast(Any, Arrived(offset, value)))


def test_only_keys_within_the_window_count() -> None:
    keys = keys_of(Topics(old=400, young=900))
    asyncio.run(keys.load({TopicPartition("t", 2)}))
    assert claim(keys, b"old")
    assert not claim(keys, b"young")


def test_keys_count_when_their_transaction_is_committed() -> None:
    topics, sent = Topics(), Sent()
    keys = keys_of(topics)
    place = TopicPartition("t", 2)

    async def play() -> None:
        await keys.load({place})
        assert claim(keys, b"a")
        assert not claim(keys, b"a")
        keys.ended(committed=False)
        assert claim(keys, b"a", offset=5)
        await keys.write(cast(Any, sent))
        keys.ended(committed=True)
        assert not claim(keys, b"a")
        await keys.load({place})

    asyncio.run(play())
    assert sent.records == [("t-seen", 2, b"a")]
    assert topics.loads == [place]


def test_a_partition_that_comes_back_is_loaded_again() -> None:
    topics = Topics()
    keys = keys_of(topics)
    place = TopicPartition("t", 2)

    async def play() -> None:
        await keys.load({place})
        keys.revoked({place})
        topics.keys = {"a": 900}
        await keys.load({place})

    asyncio.run(play())
    assert not claim(keys, b"a")


def test_the_bound_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    keys = keys_of(Topics(), limit=2)

    async def play() -> None:
        await keys.load({TopicPartition("t", 2)})
        for number in range(6):
            claim(keys, b"%d" % number)
            await keys.write(cast(Any, Sent()))
            keys.ended(committed=True)

    with caplog.at_level(logging.WARNING, "penstock.client"):
        asyncio.run(play())
    assert [r.getMessage().partition(" ")[0] for r in caplog.records] == ["1", "2", "4"]
    assert "Raise idempotent_max_keys" in caplog.records[0].getMessage()
    assert claim(keys, b"0")
    assert not claim(keys, b"5")


def test_names_of_topics() -> None:
    assert seen_topic_name("group", "topic") == "group.topic.seen-keys"
    odd, other = seen_topic_name("a group", "t"), seen_topic_name("a/group", "t")
    assert odd != other
    assert odd.startswith("a_group.t.seen-keys-")
    assert len(seen_topic_name("g" * 300, "t")) <= 249


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"delivery": "at_least_once"}, "needs delivery='exactly_once'"),
        ({"idempotent_window": 0}, "must be positive"),
        ({"idempotent_max_keys": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be(arguments: Any, advice: str) -> None:
    with pytest.raises(MisusedClient, match=advice):
        Consumer("x:1", group="g", **{"delivery": "exactly_once", "idempotent_key": "id", **arguments})
