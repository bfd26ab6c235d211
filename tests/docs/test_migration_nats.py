"""The programs and commands of the guide from NATS, on a broker and on a NATS server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from penstock.testing import QueueCluster
from tests.docs.migration import Guide

PAGE = "docs/migrating-from-nats.md"
SERVER = "nats://127.0.0.1:4222"


def test_the_new_programs(
    penstock_queues: QueueCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd)
    guide.create("orders", "shop.orders.new", "shop.orders.paid", "prices", "prices.replies")
    assert guide.after() == [
        "['order 1', 'order 2']\n",
        "[('shop.orders.new', 'order 1'), ('shop.orders.paid', 'order 2')]\n",
        "42 for pears\n",
    ]


def test_the_way_there_and_back(
    nats_url: str,
    penstock_queues: QueueCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd, {SERVER: nats_url})
    names = guide.before()
    asyncio.run(names["send"](["a", "b"]))
    assert asyncio.run(names["work"](2)) == ["a", "b"]
    asyncio.run(names["send"](["c"]))

    assert asyncio.run(names["unfinished"]("billing")) == 1

    copy, back = guide.commands()
    # The bridge has a durable consumer of its own, so it copies all messages of the stream.
    there = copy()
    assert "copied 3 messages of NATS stream ORDERS to topic orders" in there
    assert there.splitlines()[-1].split() == ["nats", "3", "3", "0", "0"]
    asyncio.run(names["send"](["d"]))
    assert asyncio.run(names["unfinished"]("penstock-bridge")) == 1
    assert copy().splitlines()[-1].split() == ["nats", "4", "4", "0", "0"]
    assert asyncio.run(names["unfinished"]("penstock-bridge")) == 0

    guide.send("orders", "e")
    assert "copied 1 messages of topic orders to NATS subject orders.returned, 4 skipped" in back()
    assert asyncio.run(names["work"](3)) == ["c", "d", "e"]


def test_a_scheduled_message_comes_later(nats_url: str) -> None:
    """The delay of NATS in the table: a schedule stores a message for its target at its time."""
    asyncio.run(_schedule(nats_url))


async def _schedule(url: str) -> None:
    client = await import_module("nats").connect(url)
    version = client.connected_server_version
    if (version.major, version.minor) < (2, 12):
        await client.close()
        pytest.skip(f"NATS {version} has no message schedules")
    stream = client.jetstream()
    await stream.add_stream(name="LATER", subjects=["later.*"], allow_msg_schedules=True)
    at = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    headers = {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "later.due"}
    await stream.publish("later.scheduled", b"order 7", headers=headers)
    subscription = await stream.pull_subscribe("later.due", durable="due", stream="LATER")
    (message,) = await subscription.fetch(1, timeout=10)
    assert message.data == b"order 7"
    await client.close()
