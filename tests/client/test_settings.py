"""Arguments of the clients under librdkafka's names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client import Consumer, MisusedClient, Producer


def producer(**arguments: Any) -> dict[str, Any]:
    return Producer("127.0.0.1:1", **arguments)._config


def consumer(**arguments: Any) -> dict[str, Any]:
    return dict(Consumer("127.0.0.1:1", "t", group="g", **arguments)._fetcher._config)


def test_a_producer_sends_a_megabyte_by_default_and_batches_stay_within_the_default_limit() -> None:
    settings = producer(batch_size=10 << 20)
    assert settings["message.max.bytes"] > 1 << 20
    assert settings["batch.size"] == 1 << 20
    assert producer()["batch.size"] == 1_000_000
    larger = producer(max_message_size=10 << 20, batch_size=5 << 20)
    assert (larger["message.max.bytes"] > 10 << 20, larger["batch.size"]) == (True, 5 << 20)


def test_acks_of_all_replicas_have_two_names() -> None:
    for acks in ("all", -1):
        assert producer(acks=acks)["enable.idempotence"] is True


def test_a_consumer_has_its_min_bytes_and_max_wait() -> None:
    settings = consumer(fetch_min_bytes=1000, fetch_max_wait=0.25)
    assert (settings["fetch.min.bytes"], settings["fetch.wait.max.ms"]) == (1000, 250)
    assert settings["group.protocol"] == "consumer"


def test_a_member_with_timeouts_of_its_own_uses_the_classic_protocol() -> None:
    settings = consumer(session_timeout=10, heartbeat_interval=3)
    assert (settings["session.timeout.ms"], settings["heartbeat.interval.ms"]) == (10_000, 3000)
    assert settings["group.protocol"] == "classic"
    with pytest.raises(MisusedClient, match=r"group config consumer\.session\.timeout\.ms"):
        consumer(session_timeout=10, protocol="consumer")


def test_a_consumer_with_all_of_them_reads(bootstrap: str, name: str) -> None:
    async def through() -> None:
        async with Producer(bootstrap, acks=-1, retries=5, retry_backoff=0.05) as sender:
            await sender.send(name, "one")
        reader = Consumer(
            bootstrap,
            name,
            group=name,
            session_timeout=10,
            heartbeat_interval=3,
            fetch_min_bytes=1,
            fetch_max_wait=0.1,
        )
        async with reader:
            assert (await anext(reader)).value == b"one"

    asyncio.run(through())
