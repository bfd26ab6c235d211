"""`Admin.links`, against two clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from penstock.client import (
    Admin,
    AuthenticationFailed,
    ClientClosed,
    DeliveryFailed,
    LinkFailed,
    MisusedClient,
    NotReachable,
    Producer,
    Record,
    Refused,
    TopicPartition,
)
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, ends_at

#: seconds that a loaded machine may take
LIMIT_S = 60.0
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def source() -> Iterator[str]:
    with broker(config=DEFAULTS) as running:
        yield running.bootstrap


@pytest.fixture
def destination() -> Iterator[str]:
    with broker(config=DEFAULTS) as running:
        yield running.bootstrap


async def send(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, [Record(value=f"{n}", partition=0) for n in range(count)])


@asynccontextmanager
async def mirroring(source: str, destination: str) -> AsyncIterator[Admin]:
    """A link `west` whose topics orders and payments are mirrored: 5 records each."""
    async with Admin(source) as admin:
        for name in ("orders", "payments"):
            await admin.create_topic(name)
            await send(source, name, 5)
    async with Admin(destination, timeout=30) as admin:
        await admin.links.create("west", source, groups="*", interval=0.2)
        for name in ("orders", "payments"):
            await asyncio.to_thread(ends_at, destination, name, 5)
        yield admin


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition never held"
        await asyncio.sleep(0.05)


def test_a_link_from_its_creation_to_its_end(source: str, destination: str) -> None:
    async def manage() -> None:
        async with mirroring(source, destination) as admin:
            links = admin.links
            with pytest.raises(LinkFailed, match="link west exists"):
                await links.create("west", source)
            (listed,) = await links.list()
            assert (listed.link, listed.source, listed.state) == ("west", source, "active")
            assert (listed.topics, listed.partitions, listed.error) == (2, 2, "")

            async def caught_up() -> bool:
                found = (await links.list())[0]
                return (found.lag_records, found.unknown_lags) == (0, 0)

            await until(caught_up)
            found = await links.describe("west")
            assert (found.configs["groups"], found.problems) == ("*", {})
            assert [(p.topic, p.state, p.end_offset) for p in found.partitions] == [
                ("orders", "mirroring", 5),
                ("payments", "mirroring", 5),
            ]
            await links.pause("west")
            assert (await links.list())[0].state == "paused"
            await links.resume("west")
            assert (await links.list())[0].state == "active"
            with pytest.raises(LinkFailed, match="topic nothing is not mirrored by link west"):
                await links.promote("west", ["nothing"])
            with pytest.raises(DeliveryFailed, match="POLICY_VIOLATION"):
                await send(destination, "payments", 1)
            (ended,) = await links.promote("west", ["payments"], wait=LIMIT_S)
            assert (ended.topic, ended.end_offset, ended.missed) == ("payments", 5, 0)
            await send(destination, "payments", 1)
            with pytest.raises(LinkFailed, match=r"link west mirrors 1 topics \(orders\)"):
                await links.delete("west")
            (ended,) = await links.failover("west", every=True, wait=LIMIT_S)
            assert (ended.topic, ended.end_offset) == ("orders", 5)
            await send(destination, "orders", 1)
            await links.delete("west")
            assert await links.list() == []
            for call in (links.describe, links.pause, links.resume, links.delete):
                with pytest.raises(LinkFailed, match="there is no link west"):
                    await call("west")

    asyncio.run(manage())


def test_a_forced_deletion_opens_the_topics(source: str, destination: str) -> None:
    async def manage() -> None:
        async with mirroring(source, destination) as admin:
            await admin.links.delete("west", force=True)
            assert await admin.links.list() == []
            await send(destination, "orders", 2)
            assert list((await admin.end_offsets("orders")).values()) == [7]

    asyncio.run(manage())


def test_an_old_source_returns_after_a_failover(source: str, destination: str) -> None:
    """Its own records are set aside, and committed offsets behind them are set back."""

    async def manage() -> None:
        async with mirroring(source, destination) as admin, Admin(source, timeout=30) as old:
            await admin.links.pause("west")
            await send(source, "orders", 3)
            await admin.links.failover("west", every=True, wait=LIMIT_S)
            await send(destination, "orders", 4)
            await old.set_offsets("readers", {TopicPartition("orders", 0): 8})
            await old.set_offsets("others", {TopicPartition("orders", 0): 2})
            await old.links.create("east", destination, topics="orders", interval=0.2)
            with pytest.raises(MisusedClient, match="name the topics"):
                await old.links.failback("east", [])
            with pytest.raises(LinkFailed, match="there is no link north"):
                await old.links.failback("north", ["orders"])
            for dry_run in (True, False):
                (found,) = await old.links.failback("east", ["orders"], wait=LIMIT_S, dry_run=dry_run)
                assert (found.topic, found.common_offset, found.set_aside_records) == ("orders", 5, 3)
            await asyncio.to_thread(ends_at, source, "orders", 9)
            assert (await old.offsets("readers"))[TopicPartition("orders", 0)] == 5
            assert (await old.offsets("others"))[TopicPartition("orders", 0)] == 2
            assert await old.links.failback("east", ["orders"], wait=LIMIT_S) == []

    asyncio.run(manage())


def test_an_incomplete_promotion_raises_an_error_with_the_missing_records(destination: str) -> None:
    """It can be given up, and the topics are mirrored as before."""

    async def manage(source: str, stop: Callable[[], None]) -> None:
        async with mirroring(source, destination) as admin:
            await asyncio.to_thread(stop)
            with pytest.raises(LinkFailed, match="1 of 1 partitions are not complete: orders-0 lacks"):
                await admin.links.promote("west", ["orders"], wait=0.5)

            async def states() -> list[str]:
                return [each.state for each in (await admin.links.describe("west")).partitions]

            assert await states() == ["promoting", "mirroring"]
            await admin.links.resume("west")
            assert await states() == ["mirroring", "mirroring"]

            async def is_reported() -> bool:
                return (await admin.links.list())[0].error != ""

            await until(is_reported)

    with broker(config=DEFAULTS) as source:
        asyncio.run(manage(source.bootstrap, source.kill))


def test_arguments_that_cannot_work(destination: str) -> None:
    async def manage() -> None:
        async with Admin(destination) as admin:
            for topics, every in (([], False), (["orders"], True)):
                with pytest.raises(MisusedClient, match="name topics, or pass every=True"):
                    await admin.links.promote("west", topics, every=every)
            with pytest.raises(MisusedClient, match="must be a list of names"):
                await admin.links.failover("west", "orders")
            with pytest.raises(MisusedClient, match=r"TLS and SASL of the source only, not linger\.ms"):
                await admin.links.create("west", NOWHERE, config={"linger.ms": "1"})
            with pytest.raises(Refused, match=r"link west is not changed: INVALID_CONFIG.*bootstrap"):
                await admin.links.create("west", "nowhere")
            assert await admin.links.list() == []
        with pytest.raises(ClientClosed):
            await admin.links.list()
        async with Admin(NOWHERE, timeout=0.5) as admin:
            with pytest.raises(NotReachable, match="Check that a broker listens"):
                await admin.links.list()

    asyncio.run(manage())


def test_a_link_between_secured_clusters() -> None:
    """Both have TLS and SCRAM; the settings of the source are given under the names of librdkafka."""
    with broker(config=DEFAULTS, secure=True) as source, broker(config=DEFAULTS, secure=True) as destination:

        async def manage() -> None:
            async with Admin(source.bootstrap, config=source.client_config) as admin:
                await admin.create_topic("orders")
            config = destination.client_config
            async with Admin(destination.bootstrap, timeout=30, config=config) as admin:
                secrets = source.client_config
                await admin.links.create("west", source.bootstrap, interval=0.2, config=secrets)

                async def is_mirrored() -> bool:
                    return (await admin.links.list())[0].topics == 1

                await until(is_mirrored)
                hidden = (await admin.links.describe("west")).configs.values()
                assert secrets["sasl.password"] not in hidden
                await admin.links.delete("west", force=True)
            async with Admin(
                destination.bootstrap, timeout=30, config={**config, "sasl.password": "wrong"}
            ) as admin:
                with pytest.raises(AuthenticationFailed, match=r"Check sasl\.username"):
                    await admin.links.list()

        asyncio.run(manage())


def test_security_of_the_source_is_stored_and_not_shown(destination: str) -> None:
    secrets = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    secrets |= {"sasl.username": "replicator", "sasl.password": "hidden"}

    async def manage() -> None:
        async with Admin(destination) as admin:
            await admin.links.create("west", NOWHERE, config=secrets)
            configs = (await admin.links.describe("west")).configs
            assert configs["security.protocol"] == "SASL_PLAINTEXT"
            assert "hidden" not in configs.values()

    asyncio.run(manage())
