from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.client import (
    ClientClosed,
    Consumer,
    Message,
    MisusedClient,
    NotReachable,
    Producer,
    Record,
    SerializationError,
    TopicPartition,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
COUNT = 10


async def fill(bootstrap: str, topic: str, count: int = COUNT, partition: int | None = 0) -> None:
    """Messages 0, 1, 2... one minute apart."""
    async with Producer(bootstrap) as producer:
        records = [
            Record(value=str(i), key=str(i % 4), partition=partition, timestamp=NOON + timedelta(minutes=i))
            for i in range(count)
        ]
        await producer.send_batch(topic, records)


async def take(consumer: Consumer, count: int) -> list[int]:
    return [int((await anext(consumer)).value) for _ in range(count)]


async def seen_by(bootstrap: str, topic: str, count: int, **arguments: Any) -> list[int]:
    async with Consumer(bootstrap, topic, **{"group": topic, **arguments}) as consumer:
        return await take(consumer, count)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_goes_on_where_it_was(bootstrap: str, name: str, protocol: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        assert await seen_by(bootstrap, name, 4, protocol=protocol) == [0, 1, 2, 3]
        assert await seen_by(bootstrap, name, 6, protocol=protocol) == [4, 5, 6, 7, 8, 9]

    asyncio.run(read())


def test_messages_in_hand_at_a_failure_are_delivered_again(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        with pytest.raises(ZeroDivisionError):
            async with Consumer(bootstrap, name, group=name) as consumer:
                async for message in consumer:
                    1 / (3 - int(message.value))
        assert await seen_by(bootstrap, name, 2) == [3, 4]

    asyncio.run(read())


def test_poll(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        async with Consumer(bootstrap, name, group=name) as consumer:
            first: list[Message] = []
            while not first:
                first = await consumer.poll(3)
            assert [message.value for message in first] == [b"0", b"1", b"2"]
            rest: list[Message] = []
            while len(rest) < COUNT - 3:
                rest += await consumer.poll()
            assert await consumer.poll(wait=0.0) == []
        async with Consumer(bootstrap, name, group=name) as consumer:
            assert await consumer.poll(wait=0.5) == []

    asyncio.run(read())


def test_manual_commits(bootstrap: str, name: str) -> None:
    partition = TopicPartition(name, 0)

    async def read() -> None:
        await fill(bootstrap, name)
        async with Consumer(bootstrap, name, group=name, auto_commit=False) as consumer:
            await take(consumer, 3)
            assert await consumer.committed() == {}
            await consumer.commit()
            assert await consumer.committed() == {partition: 3}
            message = await anext(consumer)
            await take(consumer, 2)
            await consumer.commit(message)
            assert await consumer.committed() == {partition: 4}
            await consumer.commit({partition: 2})
        assert await seen_by(bootstrap, name, 1) == [2]

    asyncio.run(read())


@pytest.mark.parametrize(
    ("reset", "first"),
    [("earliest", 0), (6, 6), (NOON + timedelta(minutes=7, seconds=-1), 7)],
    ids=["earliest", "offset", "timestamp"],
)
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_where_a_new_group_starts(bootstrap: str, name: str, protocol: str, reset: Any, first: int) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        assert await seen_by(bootstrap, name, 1, reset=reset, protocol=protocol) == [first]
        # A group that has an offset goes on there.
        assert await seen_by(bootstrap, name, 1, reset=reset, protocol=protocol) == [first + 1]

    asyncio.run(read())


def test_a_new_group_may_start_at_the_end(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        async with Consumer(bootstrap, name, group=name, reset="latest") as consumer:
            # It finds the end in its own time: what is written until then is behind it.
            while not (found := await consumer.poll(wait=0.1)):
                await fill(bootstrap, name, 1)
            assert found[0].offset >= COUNT

    asyncio.run(read())


def test_seek(bootstrap: str, name: str) -> None:
    partition = TopicPartition(name, 0)

    async def read() -> None:
        await fill(bootstrap, name)
        async with Consumer(bootstrap, name, group=name) as consumer:
            assert await take(consumer, 2) == [0, 1]
            await consumer.seek(partition, 8)
            assert await take(consumer, 2) == [8, 9]
            await consumer.seek(partition, "earliest")
            assert await take(consumer, 2) == [0, 1]
            await consumer.seek(partition, NOON + timedelta(minutes=5))
            assert await take(consumer, 1) == [5]
            await consumer.seek(partition, "latest")
            assert await consumer.poll(wait=0.3) == []
            with pytest.raises(MisusedClient, match="is not assigned"):
                await consumer.seek(TopicPartition(name, 77), 0)

    asyncio.run(read())


def test_pause(bootstrap: str, name: str) -> None:
    quiet, other = TopicPartition(name, 0), TopicPartition(name, 1)

    async def read() -> None:
        await fill(bootstrap, name)
        async with Consumer(bootstrap, name, group=name) as consumer:
            assert await take(consumer, 2) == [0, 1]
            consumer.pause([quiet])
            await fill(bootstrap, name, 3, partition=other.partition)
            messages = [await anext(consumer) for _ in range(3)]
            assert {message.topic_partition for message in messages} == {other}
            assert await consumer.poll(wait=0.2) == []
            consumer.resume([quiet])
            assert await take(consumer, 8) == [2, 3, 4, 5, 6, 7, 8, 9]

    asyncio.run(read())


def test_a_cancelled_read_loses_nothing(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name)
        seen: list[int] = []
        async with Consumer(bootstrap, name, group=name, max_batch=3) as consumer:
            while len(seen) < COUNT:
                waiting = asyncio.create_task(take(consumer, 1))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
                seen += [] if waiting.cancelled() else waiting.result()
        assert seen == list(range(COUNT))

    asyncio.run(read())


def test_closing_ends_the_loop(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name, 1)
        consumer = Consumer(bootstrap, name, group=name)
        with pytest.raises(MisusedClient, match="async with"):
            await consumer.poll()
        await consumer.start()
        async for _ in consumer:
            await consumer.close()
        with pytest.raises(ClientClosed):
            await consumer.poll()
        await consumer.close()

    asyncio.run(read())


def test_two_members_share(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name, 30, partition=None)
        async with (
            Consumer(bootstrap, name, group=name) as one,
            Consumer(bootstrap, name, group=name) as other,
        ):
            while not (one.assignment() and other.assignment()):
                await asyncio.gather(one.poll(wait=0.1), other.poll(wait=0.1))
            assert not one.assignment() & other.assignment()
            assert len(one.assignment() | other.assignment()) == 3

    asyncio.run(read())


def test_a_pattern(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, f"{name}-a", 1)
        await fill(bootstrap, f"{name}-b", 1)
        async with Consumer(bootstrap, group=name) as consumer:
            await consumer.subscribe(f"^{name}-.*")
            assert {(await anext(consumer)).topic for _ in range(2)} == {f"{name}-a", f"{name}-b"}

    asyncio.run(read())


def test_an_undecodable_message_fails_where_it_is_used(bootstrap: str, name: str) -> None:
    async def read() -> None:
        await fill(bootstrap, name, 1)
        async with Consumer(bootstrap, name, group=name, value_serializer=lambda raw: 1 / 0) as consumer:
            message = await anext(consumer)
            assert message.raw_value == b"0"
            with pytest.raises(SerializationError, match=rf"{name}-0 offset 0 .*use raw_value"):
                _ = message.value

    asyncio.run(read())


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"delivery": "twice"}, "must be at_most_once"),
        ({"delivery": "at_most_once", "auto_commit": False}, "leave auto_commit on"),
    ],
)
def test_invalid_settings(arguments: Any, advice: str) -> None:
    with pytest.raises(MisusedClient, match=advice):
        Consumer("x:1", group="g", **arguments)


def test_a_wrong_address_is_reported() -> None:
    async def read() -> None:
        async with Consumer("127.0.0.1:1", "topic", group="group", connect_timeout=0.2) as consumer:
            await anext(consumer)

    with pytest.raises(NotReachable, match=r"no broker responded at 127\.0\.0\.1:1"):
        asyncio.run(asyncio.wait_for(read(), 60))
