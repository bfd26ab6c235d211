from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import (
    Admin,
    ClientClosed,
    Consumer,
    MisusedClient,
    NotReachable,
    Producer,
    Record,
    Refused,
)
from penstock.client.descriptions import BrokerDescription, PartitionDescription
from penstock.model.ids import TOPIC_CREATED, TopicPartition


def test_topics(bootstrap: str, name: str) -> None:
    async def manage() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, partitions=2, config={"retention.ms": "60000"})
            topic = (await admin.topics())[name]
            assert (topic.partitions, topic.replicas) == (2, 1)
            await admin.add_partitions(name, 5)
            assert (await admin.topics())[name].partitions == 5
            await admin.delete_topic(name)
            assert name not in await admin.topics()

    asyncio.run(manage())


def test_the_cluster_and_the_partitions_of_its_topics(bootstrap: str, name: str) -> None:
    async def manage() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, partitions=2)
            found = await admin.metadata()
            host, _, port = bootstrap.rpartition(":")
            assert found.brokers == {1: BrokerDescription(1, host, int(port), None)}
            assert (found.controller, len(found.id)) == (1, 22)
            assert found.topics[name] == tuple(PartitionDescription(i, 1, (1,), (1,)) for i in range(2))

            topic = await admin.topic(name)
            assert (topic.name, len(topic.id), topic.partitions) == (name, 22, found.topics[name])
            assert topic.created is not None
            assert topic.created == topic.changed
            assert abs(topic.created - datetime.now(UTC)) < timedelta(minutes=5)
            while topic.changed == topic.created:  # the clock may not have moved on since
                await admin.add_partitions(name, len(topic.partitions) + 1)
                topic = await admin.topic(name)
            assert topic.created is not None and topic.changed is not None
            assert topic.changed > topic.created
            with pytest.raises(Refused, match="UNKNOWN_TOPIC"):
                await admin.topic(f"{name}-missing")

    asyncio.run(manage())


def test_configs(bootstrap: str, name: str) -> None:
    async def manage() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, config={"retention.ms": "60000"})
            await admin.set_config(name, {"cleanup.policy": "compact", "retention.ms": None})
            config = await admin.config(name)
            assert (config["cleanup.policy"], config["retention.ms"]) == ("compact", "604800000")
            assert TOPIC_CREATED not in config

    asyncio.run(manage())


def test_groups_and_their_offsets(bootstrap: str, name: str) -> None:
    partition = TopicPartition(name, 0)

    async def manage() -> None:
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await producer.send_batch(name, [Record(value="x", partition=0)] * 5)
            async with Consumer(bootstrap, name, group=name, client_id="me") as consumer:
                await anext(consumer)
                (member,) = (await admin.group(name)).members
                assert (member.client_id, set(member.assignment)) == ("me", consumer.assignment())
                # The broker learns from the next heartbeat that the member has taken its partitions.
                async with asyncio.timeout(60):
                    while (await admin.group(name)).state != "STABLE":
                        pass
            assert name in await admin.groups()
            assert await admin.offsets(name) == {partition: 1}
            assert await admin.lag(name) == {partition: 4}
            assert (await admin.end_offsets(name))[partition] == 5
            await admin.set_offsets(name, {partition: 3})
            assert await admin.offsets(name) == {partition: 3}
            await admin.delete_group(name)
            assert name not in await admin.groups()
            assert await admin.lag(name) == {}

    asyncio.run(manage())


def test_a_refusal_names_its_remedy(bootstrap: str, name: str) -> None:
    async def manage() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name)
            with pytest.raises(Refused, match="choose another name") as caught:
                await admin.create_topic(name)
            assert caught.value.code == 36
            await admin.create_topic(name, partitions=3, if_not_exists=True)
            assert (await admin.topics())[name].partitions == 1
            with pytest.raises(MisusedClient):
                await admin.create_topic(name, partitions=-7, if_not_exists=True)
            with pytest.raises(Refused, match="create the topic first"):
                await admin.config("no-such-topic")
            with pytest.raises(Refused, match="check the group's name"):
                await admin.delete_group("no-such-group")
            with pytest.raises(MisusedClient):
                await admin.create_topic(name, partitions=-7)

    asyncio.run(manage())


def test_no_broker_at_the_address() -> None:
    async def call(address: str) -> None:
        async with Admin(address, timeout=0.3) as admin:
            await admin.topics()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        with pytest.raises(NotReachable, match="Check that a broker listens"):
            asyncio.run(call(f"127.0.0.1:{taken.getsockname()[1]}"))


def test_use_outside_its_life(bootstrap: str) -> None:
    async def call() -> None:
        admin = Admin(bootstrap)
        with pytest.raises(MisusedClient, match="async with"):
            await admin.topics()
        async with admin:
            pass
        with pytest.raises(ClientClosed):
            await admin.topics()

    asyncio.run(call())


def test_records_are_deleted(bootstrap: str, name: str) -> None:
    async def manage() -> None:
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic(name, partitions=2)
            await producer.send_batch(name, [Record(value=b"x", partition=0) for _ in range(5)])
            first, second = TopicPartition(name, 0), TopicPartition(name, 1)
            assert await admin.delete_records({first: 3, second: 0}) == {first: 3, second: 0}
            assert await admin.delete_records({first: -1}) == {first: 5}
            assert await admin.delete_records({}) == {}
            with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
                await admin.delete_records({first: 6})

    asyncio.run(manage())
