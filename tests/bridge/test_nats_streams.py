"""A stream of a real NATS server, copied to a topic and back by the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from itertools import count
from typing import Any

import pytest

from penstock import Producer
from penstock.testing import broker
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.cli.running import run_here

pytestmark = pytest.mark.process

_numbers = count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": "0", "penstock.log.level": "error"}
    with broker(config=config) as running:
        yield running.bootstrap


@pytest.fixture
def topic(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", bootstrap)
    name = f"orders-{next(_numbers)}"
    with RawClient(bootstrap) as client:
        create_topic(client, name)
    return name


def on_stream(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = await import_module("nats").connect(url)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def publish(url: str, stream: str, bodies: list[bytes]) -> None:
    async def work(context: Any) -> None:
        await context.add_stream(name=stream, subjects=[f"{stream}.*"])
        for body in bodies:
            await context.publish(f"{stream}.new", body, headers={"kind": "new"})

    on_stream(url, work)


def bridge(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, int]:
    code = run_here("bridge", "nats", *arguments, "--exit-at-end", "--json")
    output, errors = capfd.readouterr()
    assert code == 0, errors
    found: dict[str, int] = json.loads(output)
    return found


def test_there_and_back(nats_url: str, bootstrap: str, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    stream = topic.upper()
    publish(nats_url, stream, [b"1", b"2", b"3"])
    counts = bridge(capfd, stream, topic, "--server", nats_url)
    assert (counts["written"], counts["acknowledged"], counts["lost"]) == (3, 3, 0)
    assert bridge(capfd, stream, topic, "--server", nats_url)["received"] == 0

    assert run_here("bridge", "count", topic, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)["sources"]
    assert row == {"source": "nats", "copies": 3, "distinct": 3, "duplicates": 0, "without_id": 0}
    assert run_here("consume", topic, "--from-beginning", "--exit-at-end", "--json") == 0
    first = json.loads(capfd.readouterr().out.splitlines()[0])
    assert (first["key"], first["value"]) == (f"{stream}.new", "1")
    headers = {each["name"]: each["value"] for each in first["headers"]}
    assert headers["kind"] == "new" and headers["penstock-bridge-id"].endswith(":1")

    # One record of the topic's own goes back; the three copies do not.
    with_own = f"{stream}.back"
    asyncio.run(_send(bootstrap, topic))
    back = bridge(capfd, stream, topic, "--server", nats_url, "--reverse", "--subject", with_own)
    assert (back["written"], back["skipped"]) == (1, 3)

    async def last(context: Any) -> Any:
        return await context.get_last_msg(stream, with_own)

    found = on_stream(nats_url, last)
    assert (found.data, found.headers["own"]) == (b"4", "1")
    # It came from the topic, so it is not copied to it again.
    assert bridge(capfd, stream, topic, "--server", nats_url)["skipped"] == 1


async def _send(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, "4", headers={"own": "1"})


def test_failures_are_one_line(nats_url: str, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    def failure(*arguments: str) -> str:
        assert run_here("bridge", "nats", *arguments) == 1
        errors = capfd.readouterr().err
        assert errors.count("\n") == 1, errors
        return errors

    stream = topic.upper()
    publish(nats_url, stream, [b"1"])
    bridge(capfd, stream, topic, "--server", nats_url)
    assert "has subject any, not a.new: choose another name with --durable" in failure(
        stream, topic, "--server", nats_url, "--subject", "a.new"
    )
    assert "NATS has no stream NOWHERE" in failure("NOWHERE", topic, "--server", nats_url)
    assert "no NATS server answers at nats://127.0.0.1:1" in failure(
        "S", topic, "--server", "nats://127.0.0.1:1"
    )
    assert "no topic nowhere" in failure("S", "nowhere", "--server", nats_url)
