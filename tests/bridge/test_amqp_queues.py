"""A queue of a real RabbitMQ, copied to a topic and back by the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from penstock import Producer
from penstock.bridge.amqp_queues import AmqpSource, AmqpTarget
from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.errors import BridgeError, ConnectionLost
from penstock.bridge.mapping import KeyRule
from penstock.testing import broker
from tests.bridge.fakes import FakeSource, message
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.cli.running import run_here

pytestmark = pytest.mark.process


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": "0", "penstock.log.level": "error"}
    with broker(config=config) as running:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", running.bootstrap)
        with RawClient(running.bootstrap) as client:
            create_topic(client, "tasks")
            create_topic(client, "answers")
        yield running.bootstrap


def on_channel(url: str, work: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    library = import_module("aio_pika")

    async def run() -> Any:
        async with await library.connect(url) as connection:
            return await work(library, await connection.channel())

    return asyncio.run(run())


def bridge(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, int]:
    code = run_here("bridge", "amqp", *arguments, "--exit-at-end", "--json")
    output, errors = capfd.readouterr()
    assert code == 0, errors
    found: dict[str, int] = json.loads(output)
    return found


def test_there_and_back(amqp_url: str, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def publish(library: Any, channel: Any) -> None:
        for name in ("tasks", "answers"):
            await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        for number in range(3):
            outgoing = library.Message(b"%d" % number, message_id=f"m-{number}", headers={"n": number})
            await channel.default_exchange.publish(outgoing, "tasks")

    on_channel(amqp_url, publish)
    counts = bridge(capfd, "tasks", "tasks", "--url", amqp_url)
    assert (counts["written"], counts["acknowledged"], counts["without_id"]) == (3, 3, 0)
    assert bridge(capfd, "tasks", "tasks", "--url", amqp_url)["received"] == 0

    assert run_here("consume", "tasks", "--from-beginning", "--exit-at-end", "--json") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    headers = {each["name"]: each["value"] for each in rows[1]["headers"]}
    assert (rows[1]["value"], headers["penstock-bridge-id"], headers["n"]) == ("1", "m-1", "1")

    # The copies in `tasks` came from the queue `tasks` and do not go back. Those of another topic do.
    assert bridge(capfd, "tasks", "tasks", "--url", amqp_url, "--reverse")["skipped"] == 3
    asyncio.run(_send(bootstrap))
    assert bridge(capfd, "answers", "answers", "--url", amqp_url, "--reverse")["written"] == 1

    async def get(library: Any, channel: Any) -> Any:
        queue = await channel.declare_queue("answers", passive=True)
        return await queue.get(no_ack=True, timeout=10)

    found = on_channel(amqp_url, get)
    assert (found.body, found.message_id, found.headers["own"]) == (b"hello", "answers-0:0", "1")


async def _send(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send("answers", "hello", headers={"own": "1"})


def test_failures_are_one_line(
    amqp_url: str, bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(*arguments: str) -> str:
        assert run_here("bridge", "amqp", *arguments) == 1
        errors = capfd.readouterr().err
        assert errors.count("\n") == 1, errors
        return errors

    assert "127.0.0.1 has no queue nowhere" in failure("nowhere", "tasks", "--url", amqp_url)
    monkeypatch.setenv("AMQP_URL", amqp_url.replace("guest:guest", "guest:secret"))
    refused = failure("tasks", "tasks")
    assert "no AMQP broker accepts the connection" in refused and "secret" not in refused


def test_a_queue_that_is_deleted_and_declared_again_is_consumed_again(amqp_url: str) -> None:
    async def work(library: Any, channel: Any) -> bytes | None:
        await channel.declare_queue("again", durable=True)
        source = AmqpSource(amqp_url, "again", KeyRule(), 10)
        await source.open()
        assert await source.receive(10, 0.01) == []
        await channel.queue_delete("again")
        await channel.declare_queue("again", durable=True)
        with pytest.raises(ConnectionLost, match="cancelled the consumer"):
            async with asyncio.timeout(30):
                while True:
                    await source.receive(10, 0.1)
        await source.close()
        await source.open()
        await channel.default_exchange.publish(library.Message(b"1"), "again")
        (found,) = await source.receive(10, 30)
        await source.acknowledge([found])
        await source.close()
        return found.body

    assert on_channel(amqp_url, work) == b"1"


def test_a_message_above_the_limit_of_the_broker_is_named(amqp_url: str) -> None:
    async def work(library: Any, channel: Any) -> Any:
        queue = await channel.declare_queue("small", durable=True)
        records = [message(0), replace(message(1), body=bytes((16 << 20) + 1)), message(2)]
        settings = CopySettings(exit_at_end=True, backoff_s=0.01, poll_s=0.01)
        with pytest.raises(BridgeError, match="refuses message S:1 of source"):
            async with asyncio.timeout(60):
                await Copier(FakeSource(records), AmqpTarget(amqp_url, "small"), settings).run()
        await queue.get(timeout=10)
        return (await channel.declare_queue("small", passive=True)).declaration_result.message_count

    assert on_channel(amqp_url, work) >= 1
