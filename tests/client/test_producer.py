from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import (
    JSON,
    ClientClosed,
    ClientError,
    Consumer,
    Delivery,
    DeliveryFailed,
    MisusedClient,
    NotReachable,
    Producer,
    QueueFull,
    Record,
    Refused,
    SerializationError,
)
from penstock.testing import broker
from penstock.testing.clusters import reserve_port

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_everything_about_a_message_arrives(bootstrap: str, name: str) -> None:
    async def through() -> None:
        async with Producer(bootstrap, value_serializer=JSON) as producer:
            delivery = await producer.send(
                name, {"n": 1}, key="k", headers={"trace": "x"}, timestamp=NOON, partition=2
            )
            assert (delivery.topic, delivery.partition, delivery.offset) == (name, 2, 0)
            assert delivery.timestamp == NOON
            await producer.send(name, None, key=b"k", headers=[("a", b"1"), ("a", b"2")], partition=2)
        async with Consumer(bootstrap, name, group=name, value_serializer=JSON) as consumer:
            full, tombstone = [await anext(consumer) for _ in range(2)]
        assert (full.key, full.value, full.headers) == (b"k", {"n": 1}, [("trace", b"x")])
        assert (full.topic_partition, full.offset, full.timestamp) == ((name, 2), 0, NOON)
        assert (tombstone.value, tombstone.headers) == (None, [("a", b"1"), ("a", b"2")])

    asyncio.run(through())


def test_a_batch_in_order(bootstrap: str, name: str) -> None:
    async def send() -> list[Delivery]:
        async with Producer(bootstrap) as producer:
            return await producer.send_batch(name, [Record(value=str(i), partition=0) for i in range(500)])

    assert [delivery.offset for delivery in asyncio.run(send())] == list(range(500))


def test_a_batch_of_which_some_fail(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, "the topic is known from here on")
            with pytest.raises(DeliveryFailed, match=r"^1 message\(s\) were not delivered") as caught:
                await producer.send_batch(name, [Record(value="a"), Record(value="b", partition=77)])
            assert isinstance(caught.value.first, Refused)

    asyncio.run(send())


def test_callbacks_run_on_the_loop(bootstrap: str, name: str) -> None:
    async def send() -> None:
        reported: list[tuple[Delivery | None, ClientError | None]] = []

        def report(delivery: Delivery | None, error: ClientError | None) -> None:
            asyncio.get_running_loop()  # raises on any other thread
            reported.append((delivery, error))

        async with Producer(bootstrap) as producer:
            producer.send_nowait(name, "a", partition=0, callback=report)
            producer.send_nowait(name, "b", partition=0, callback=report)
            assert reported == []
            await producer.flush()
            assert [delivery and delivery.offset for delivery, _ in reported] == [0, 1]
            with pytest.raises(Refused, match="the topic has fewer partitions"):
                producer.send_nowait(name, "c", partition=77, callback=report)
        assert len(reported) == 2

    asyncio.run(send())


def test_unobserved_failures_are_raised_by_flush(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap) as producer:
            for partition in (0, 77, 78):
                producer.send_nowait(name, "x", partition=partition)
            with pytest.raises(DeliveryFailed) as caught:
                await producer.flush()
            assert caught.value.count == 2
            await producer.flush()

    asyncio.run(send())


def test_a_full_queue(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap, config={"queue.buffering.max.messages": 10}) as producer:
            with pytest.raises(QueueFull, match="await flush"):
                for _ in range(11):
                    producer.send_nowait(name, "x", partition=0)
            # A waiting send finds room.
            delivered = await producer.send_batch(name, [Record(value="y", partition=0)] * 50)
            assert delivered[-1].offset == 59

    asyncio.run(send())


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_acks_and_compression(bootstrap: str, name: str, acks: Any, compression: Any) -> None:
    async def send() -> Delivery:
        async with Producer(bootstrap, acks=acks, compression=compression, linger=0.0) as producer:
            return await producer.send(name, b"x" * 1000, partition=1)

    delivery = asyncio.run(send())
    assert (delivery.partition, delivery.offset) == (1, None if acks == 0 else 0)


def test_idempotence_is_the_default_and_checked() -> None:
    with pytest.raises(MisusedClient, match="idempotence needs acks='all'"):
        Producer("x:1", acks=1, idempotence=True)
    with pytest.raises(MisusedClient, match="idempotence needs acks='all' and retries"):
        Producer("x:1", retries=0, idempotence=True)


def test_a_message_that_is_too_large(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, b"x" * 2_000_000)

    with pytest.raises(Refused, match="send smaller messages") as caught:
        asyncio.run(send())
    assert caught.value.code == 10


def test_a_value_that_does_not_fit(bootstrap: str, name: str) -> None:
    async def send() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, {"no": "serializer"})

    with pytest.raises(SerializationError, match="check value_serializer"):
        asyncio.run(send())


def test_no_broker_at_the_address() -> None:
    async def send(address: str) -> None:
        async with Producer(address, delivery_timeout=0.3, linger=0.0) as producer:
            await producer.send("topic", b"x")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        with pytest.raises(NotReachable, match="Check that a broker listens"):
            asyncio.run(send(f"127.0.0.1:{taken.getsockname()[1]}"))


def test_a_wrong_address_is_reported_before_messages_time_out() -> None:
    """The default delivery timeout is two minutes; librdkafka says nothing in that time."""

    async def send(address: str) -> None:
        async with Producer(address, connect_timeout=0.2) as producer:
            with pytest.raises(NotReachable, match=f"no broker responded at {address} within 0.2 s"):
                await producer.send("topic", b"x")
            producer.send_nowait("topic", b"y")
            with pytest.raises(DeliveryFailed, match="no broker responded"):
                await producer.flush()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        asyncio.run(asyncio.wait_for(send(f"127.0.0.1:{taken.getsockname()[1]}"), 60))


def test_a_broker_that_starts_late_gets_the_messages(name: str) -> None:
    async def send(address: str, port: int) -> None:
        async with Producer(address, connect_timeout=60.0) as producer:
            sending = asyncio.create_task(producer.send(name, b"x"))
            await asyncio.sleep(0)
            with broker(config={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}):
                assert (await sending).offset == 0

    with reserve_port() as reserved:
        port = reserved.getsockname()[1]
        asyncio.run(asyncio.wait_for(send(f"127.0.0.1:{port}", port), 90))


def test_closing_in_a_hurry_fails_waiting_sends() -> None:
    async def send(address: str) -> None:
        producer = Producer(address)
        await producer.start()
        waiting = asyncio.create_task(producer.send("topic", b"x"))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await producer.close()
        with pytest.raises(Refused, match="PURGE"):
            await waiting

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        asyncio.run(send(f"127.0.0.1:{taken.getsockname()[1]}"))


def test_use_outside_its_life(bootstrap: str) -> None:
    async def send() -> None:
        producer = Producer(bootstrap)
        with pytest.raises(MisusedClient, match="async with"):
            producer.send_nowait("topic", b"x")
        async with producer:
            pass
        with pytest.raises(ClientClosed, match="make a new one"):
            await producer.send("topic", b"x")
        await producer.close()

    asyncio.run(send())


def test_a_configuration_that_librdkafka_refuses() -> None:
    async def start() -> None:
        await Producer("x:1", config={"no.such.setting": 1}).start()

    with pytest.raises(MisusedClient, match=r"no\.such\.setting"):
        asyncio.run(start())
