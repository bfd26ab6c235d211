"""The scenarios with Penstock's clients: share groups through `Queue`, keyed topics through `Consumer`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock import Admin, Consumer, Producer, Queue
from penstock.client.message import Message
from penstock.client.queues.message import QueueMessage
from penstock.client.transactions import Transaction

__all__ = ["SCENARIOS", "SETTINGS", "observe"]

HIDDEN_S = 2.0
"""Visibility timeouts and delays."""
PATIENCE_S = 15.0
"""A message that has not come after so long does not come."""
QUIET_S = 1.0
"""How long a queue is watched that should have no message."""
_LONG_S = 60.0
_LIMIT_S = 90.0
"""The most time that a scenario may take."""

#: of the broker: locks as short as those of SQS are here, and groups that do not wait for more members
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "penstock.log.level": "error",
}


class Ours:
    """Topics and groups of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    async def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """`config` has the names of configs with `_` for `.`."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(name, partitions=partitions, config=named)

    async def send(self, topic: str, *values: str, **more: Any) -> None:
        async with Producer(self.bootstrap) as producer:
            for value in values:
                await producer.send(topic, value, **more)

    def queue(self, topic: str, group: str = "workers", **more: Any) -> Queue:
        settings = {"visibility_timeout": HIDDEN_S, "renew_for": 0.0, "acknowledgement": "explicit", **more}
        return Queue(self.bootstrap, topic, group=group, **settings)


async def _receive(queue: Queue, patience_s: float = PATIENCE_S) -> QueueMessage | None:
    messages = await queue.poll(1, wait=patience_s)
    return messages[0] if messages else None


async def _take(queue: Queue) -> QueueMessage:
    """A message that must come: a scenario cannot begin without it."""
    message = await _receive(queue)
    if message is None:
        raise RuntimeError(f"no message came in {PATIENCE_S:g} s")
    return message


async def _drain(queue: Queue, count: int) -> list[str]:
    """The values of up to `count` messages, each accepted; fewer if no more come."""
    values: list[str] = []
    while len(values) < count and (message := await _receive(queue)) is not None:
        await message.accept()
        values.append(message.value.decode())
    return values


async def _comes_after(queue: Queue, began: float, seconds: float) -> bool:
    """Returns true if the next message comes, and not before so many seconds since `began`."""
    return await _receive(queue) is not None and time.monotonic() - began >= seconds


async def _redelivery(ours: Ours) -> bool:
    await ours.topic("redelivery")
    await ours.send("redelivery", "1")
    async with ours.queue("redelivery") as queue:
        began = time.monotonic()
        await _take(queue)
        return await _comes_after(queue, began, HIDDEN_S)


async def _extension(ours: Ours) -> bool:
    await ours.topic("extension")
    await ours.send("extension", "1")
    async with ours.queue("extension") as queue:
        message = await _take(queue)
        await asyncio.sleep(HIDDEN_S / 2)
        extended = time.monotonic()
        await message.renew()
        return await _comes_after(queue, extended, HIDDEN_S)


async def _return(ours: Ours) -> bool:
    await ours.topic("return")
    await ours.send("return", "1")
    async with ours.queue("return", visibility_timeout=_LONG_S) as queue:
        await (await _take(queue)).release()
        return await _receive(queue) is not None


async def _count(ours: Ours) -> bool:
    await ours.topic("count")
    await ours.send("count", "1")
    counts = []
    async with ours.queue("count") as queue:
        for _ in range(3):
            message = await _take(queue)
            counts.append(message.delivery_count)
            await message.release()
    return counts == [1, 2, 3]


async def _dead_letter(ours: Ours) -> bool:
    await ours.topic("dead-letter")
    await ours.topic("dlq.dead-letter", errors_deadletterqueue_group_enable="true")
    await ours.send("dead-letter", "1")
    letters = {
        "errors.deadletterqueue.topic.name": "dlq.dead-letter",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    async with ours.queue("dead-letter", max_deliveries=2, group_config=letters) as queue:
        for _ in range(2):
            await (await _take(queue)).release()
        comes_no_more = await _receive(queue, QUIET_S) is None
    async with ours.queue("dlq.dead-letter", group="clerks") as dead:
        return comes_no_more and await _drain(dead, 1) == ["1"]


async def _delayed_queue(ours: Ours) -> bool:
    await ours.topic("delayed-queue", penstock_delivery_delay_ms=str(round(HIDDEN_S * 1000)))
    async with ours.queue("delayed-queue") as queue:
        began = time.monotonic()
        await ours.send("delayed-queue", "1")
        return await _comes_after(queue, began, HIDDEN_S)


async def _delayed_message(ours: Ours) -> bool:
    await ours.topic("delayed-message")
    await ours.topic("delayed-later", penstock_delay_target="delayed-message", retention_ms="-1")
    async with ours.queue("delayed-message") as queue:
        began = time.monotonic()
        await ours.send("delayed-later", "late", delay=HIDDEN_S)
        await ours.send("delayed-later", "soon")
        return await _drain(queue, 2) == ["soon", "late"] and time.monotonic() - began >= HIDDEN_S


async def _order(ours: Ours) -> bool:
    await ours.topic("order", partitions=2)
    sent = [f"{key}{number}" for number in range(4) for key in "ab"]
    for value in sent:
        await ours.send("order", value, key=value[0])
    async with Consumer(ours.bootstrap, "order", group="readers") as consumer:
        async with asyncio.timeout(PATIENCE_S):
            found = [(await anext(consumer)).value.decode() for _ in sent]
    return all([v for v in found if v[0] == key] == [v for v in sent if v[0] == key] for key in "ab")


async def _held_back(ours: Ours) -> bool:
    await ours.topic("held-back")
    for value in ("a1", "a2", "b1"):
        await ours.send("held-back", value, key=value[0])
    events: list[str] = []
    is_done = asyncio.Event()

    async def handle(message: Message) -> None:
        value = message.value.decode()
        events.append(f"{value} begins")
        if value == "a1":
            await asyncio.sleep(QUIET_S)
        events.append(f"{value} ends")
        if len(events) == 6:
            is_done.set()

    async with Consumer(ours.bootstrap, "held-back", group="readers") as consumer:
        running = asyncio.create_task(consumer.run(handle, style="parallel", concurrency=4))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await is_done.wait()
        finally:
            running.cancel()
            await asyncio.wait([running])
    first_ends = events.index("a1 ends")
    return events.index("b1 begins") < first_ends < events.index("a2 begins")


async def _de_duplication(ours: Ours) -> bool:
    await ours.topic("de-duplication")
    for value, number in (("1", "x"), ("1", "x"), ("last", "y")):
        await ours.send("de-duplication", value, key="a", headers={"id": number})
    found: list[str] = []
    consumer = Consumer(
        ours.bootstrap, "de-duplication", group="once", delivery="exactly_once", idempotent_key="id"
    )

    async def handle(message: Message, transaction: Transaction) -> None:
        found.append(message.value.decode())
        if found[-1] == "last":
            await consumer.close()

    async with consumer, asyncio.timeout(PATIENCE_S):
        await consumer.run(handle)
    return found == ["1", "last"]


async def _fan_out(ours: Ours) -> bool:
    await ours.topic("fan-out")
    await ours.send("fan-out", "1", "2", "3")
    found = []
    for group in ("fan-out-a", "fan-out-b"):
        async with ours.queue("fan-out", group=group) as queue:
            found.append(sorted(await _drain(queue, 3)))
    return found == [["1", "2", "3"], ["1", "2", "3"]]


async def _late_subscriber(ours: Ours) -> bool:
    await ours.topic("late-subscriber")
    await ours.send("late-subscriber", "before")
    async with ours.queue("late-subscriber", group="early") as queue:
        await _drain(queue, 1)
    async with ours.queue("late-subscriber", group="late", reset="earliest") as queue:
        return await _drain(queue, 1) == ["before"]


SCENARIOS: Mapping[str, Callable[[Ours], Awaitable[bool]]] = {
    "redelivery": _redelivery,
    "extension": _extension,
    "return": _return,
    "count": _count,
    "dead-letter": _dead_letter,
    "delayed-queue": _delayed_queue,
    "delayed-message": _delayed_message,
    "order": _order,
    "held-back": _held_back,
    "de-duplication": _de_duplication,
    "fan-out": _fan_out,
    "late-subscriber": _late_subscriber,
}


def observe(bootstrap: str, scenario: str) -> bool:
    """Run one scenario on a broker."""

    async def limited() -> bool:
        async with asyncio.timeout(_LIMIT_S):
            return await SCENARIOS[scenario](Ours(bootstrap))

    return asyncio.run(limited())
