"""`QueueRun` without a broker: concurrency, retries, dead letters, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client import QueueMessage, Refused, RetryPolicy, SerializationError
from penstock.client.queues.message import (
    Acknowledgement,
    Decoders,
    LockState,
    RawRecord,
    TopicIdPartition,
)
from penstock.client.queues.outcomes import Outcome
from penstock.client.queues.running import QueueJob, QueueRun
from penstock.client.serializers import BYTES
from penstock.records.record import Record

PLACE = TopicIdPartition(b"o" * 16, 0)


class Letters:
    """The part of a producer that a run uses."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails
        self.sent: list[tuple[str, bytes, dict[str, bytes | None]]] = []

    async def send(self, topic: str, value: bytes, *, headers: Any, **_: Any) -> None:
        if self._fails:
            raise Refused("no such topic", 3)
        self.sent.append((topic, value, dict(headers)))


class Broker:
    """Delivers values; a released message comes again with a higher count."""

    def __init__(self, *values: bytes) -> None:
        self._waiting: asyncio.Queue[tuple[int, bytes, int] | None] = asyncio.Queue()
        for offset, value in enumerate(values):
            self._waiting.put_nowait((offset, value, 1))
        self.outcomes: list[tuple[bytes, Outcome]] = []
        self.in_hand: set[int] = set()
        self.run: QueueRun

    async def take(self) -> QueueMessage | None:
        waiting = await self._waiting.get()
        if waiting is None:
            return None
        offset, value, count = waiting
        raw = RawRecord("orders", 0, Record(offset, 0, None, value, (("null", None),)), False)
        message = QueueMessage(raw, Decoders(BYTES.decode, BYTES.decode), PLACE, count, self)
        self.in_hand.add(offset)
        return message

    def settle(self, message: QueueMessage, outcome: Outcome) -> Acknowledgement:
        assert message.is_held
        message.state = LockState.CONFIRMED
        self.in_hand.discard(message.offset)
        self.outcomes.append((message.raw_value or b"", outcome))
        if outcome is Outcome.RELEASE:
            self._waiting.put_nowait((message.offset, message.raw_value or b"", message.delivery_count + 1))
        return Acknowledgement(lambda: None)

    def drop(self, message: QueueMessage) -> None:
        raise AssertionError

    def stop(self) -> None:
        self._waiting.put_nowait(None)
        self.run.stop()

    def freed(self) -> None:
        """Stop when nothing is left to do."""
        if self._waiting.empty() and not self.in_hand:
            self.stop()

    async def work(
        self,
        handler: Callable[[QueueMessage], Awaitable[object]],
        *,
        concurrency: int = 4,
        attempts: int = 3,
        letters: Letters | None = None,
        shutdown_timeout_s: float = 10.0,
    ) -> None:
        job = QueueJob(
            handler=handler,
            concurrency=concurrency,
            retry=RetryPolicy(attempts=attempts, backoff=0.001),
            group="workers",
            dead_letters=None if letters is None else (letters, "dead"),  # type: ignore[arg-type]
            tracing=None,
            shutdown_timeout_s=shutdown_timeout_s,
        )
        self.run = QueueRun(job, self.take, self.freed)
        await asyncio.wait_for(self.run.run(), 60)


def play(coroutine: Any) -> None:
    asyncio.run(coroutine)


async def fail(message: QueueMessage) -> None:
    raise ValueError("cannot do it")


def test_messages_are_handled_at_the_same_time() -> None:
    async def work() -> None:
        broker = Broker(*(str(n).encode() for n in range(20)))
        running = most = 0

        async def handle(message: QueueMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)  # handlers that overlap
            running -= 1

        await broker.work(handle, concurrency=4)
        assert most == 4
        assert broker.outcomes.count((b"7", Outcome.ACCEPT)) == 1
        assert {outcome for _, outcome in broker.outcomes} == {Outcome.ACCEPT}

    play(work())


def test_a_message_that_always_fails_is_rejected() -> None:
    async def work() -> None:
        broker = Broker(b"bad")
        await broker.work(fail)
        assert [o for _, o in broker.outcomes] == [Outcome.RELEASE, Outcome.RELEASE, Outcome.REJECT]

    play(work())


def test_a_message_that_always_fails_becomes_a_dead_letter() -> None:
    async def work() -> None:
        broker, letters = Broker(b"bad"), Letters()
        await broker.work(fail, letters=letters)
        assert [o for _, o in broker.outcomes] == [Outcome.RELEASE, Outcome.RELEASE, Outcome.ACCEPT]
        ((topic, value, headers),) = letters.sent
        assert (topic, value) == ("dead", b"bad")
        assert headers["null"] is None, "a header without a value stays"
        assert headers["__dlq.errors.group"] == b"workers"
        assert headers["__dlq.errors.delivery.count"] == b"3"
        assert headers["__dlq.errors.message"] == b"ValueError: cannot do it"

    play(work())


def test_a_message_is_kept_if_its_dead_letter_is_not_sent() -> None:
    async def work() -> None:
        broker = Broker(b"bad")
        calls = 0

        async def handle(message: QueueMessage) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ValueError

        await broker.work(handle, attempts=1, letters=Letters(fails=True))
        assert [o for _, o in broker.outcomes] == [Outcome.RELEASE, Outcome.ACCEPT]

    play(work())


def test_undecodable_messages_are_rejected_at_once() -> None:
    async def work() -> None:
        broker = Broker(b"bad")

        async def handle(message: QueueMessage) -> None:
            raise SerializationError("no JSON")

        await broker.work(handle)
        assert [o for _, o in broker.outcomes] == [Outcome.REJECT]

    play(work())


def test_a_handler_may_choose_the_outcome() -> None:
    async def work() -> None:
        broker = Broker(b"a", b"b")

        async def handle(message: QueueMessage) -> None:
            if message.delivery_count == 1:
                message.release()
            elif message.value == b"a":
                message.reject()
                raise ValueError("after the outcome")

        await broker.work(handle, concurrency=1)
        assert broker.outcomes == [
            (b"a", Outcome.RELEASE),
            (b"b", Outcome.RELEASE),
            (b"a", Outcome.REJECT),
            (b"b", Outcome.ACCEPT),
        ]

    play(work())


def test_the_end_waits_for_handlers_and_releases_late_messages() -> None:
    async def work() -> None:
        broker = Broker(b"short", b"long")
        begun = asyncio.Semaphore(0)

        async def handle(message: QueueMessage) -> None:
            begun.release()
            await asyncio.sleep(0.01 if message.value == b"short" else 3600)  # work

        running = asyncio.create_task(broker.work(handle, shutdown_timeout_s=0.1))
        await begun.acquire()
        await begun.acquire()
        broker.stop()
        await running
        assert broker.outcomes == [(b"short", Outcome.ACCEPT), (b"long", Outcome.RELEASE)]
        assert broker.run.ended.is_set()

    play(work())


def test_a_message_in_its_backoff_is_released_at_the_end() -> None:
    async def work() -> None:
        broker = Broker(b"bad")
        failed = asyncio.Event()

        async def handle(message: QueueMessage) -> None:
            failed.set()
            raise ValueError

        job = QueueJob(
            handler=handle,
            concurrency=1,
            retry=RetryPolicy(attempts=3, backoff=3600, max_backoff=3600),
            group="workers",
            dead_letters=None,
            tracing=None,
            shutdown_timeout_s=10,
        )
        broker.run = QueueRun(job, broker.take, lambda: None)
        running = asyncio.create_task(broker.run.run())
        await failed.wait()
        broker.stop()
        await running
        assert broker.outcomes == [(b"bad", Outcome.RELEASE)]

    play(work())


def test_a_cancelled_run_releases_its_messages() -> None:
    async def work() -> None:
        broker = Broker(b"a")
        begun = asyncio.Event()

        async def handle(message: QueueMessage) -> None:
            begun.set()
            await asyncio.sleep(3600)

        running = asyncio.create_task(broker.work(handle))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert broker.outcomes == [(b"a", Outcome.RELEASE)]

    play(work())
