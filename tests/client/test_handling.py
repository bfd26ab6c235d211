from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client import (
    JSON,
    Admin,
    Consumer,
    HandlerFailed,
    Message,
    MisusedClient,
    Producer,
    Record,
    RetryPolicy,
    SerializationError,
)

QUICK = RetryPolicy(attempts=3, backoff=0.001)


def test_rests_double_up_to_a_limit_and_are_cut_by_chance() -> None:
    delays = list(RetryPolicy(attempts=6, backoff=1.0, max_backoff=5.0).delays())
    assert len(delays) == 5
    assert all(full / 2 <= delay <= full for delay, full in zip(delays, [1, 2, 4, 5, 5], strict=True))


def test_only_listed_errors_are_retried() -> None:
    policy = RetryPolicy(retry_on=(OSError, SerializationError))
    assert policy.worth_another(TimeoutError())
    assert not policy.worth_another(ValueError())
    assert not policy.worth_another(SerializationError("bytes do not get better"))


def test_a_policy_that_cannot_be() -> None:
    with pytest.raises(MisusedClient, match="at least one attempt"):
        RetryPolicy(attempts=0)


async def fill(bootstrap: str, topic: str, values: list[str], partition: int | None = 0) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, [Record(value=v, key=v, partition=partition) for v in values])


class Work:
    """A handler that fails on some values, and closes its consumer when it has seen enough of them."""

    def __init__(self, enough: int, fails: Callable[[Message, int], bool]) -> None:
        self._enough = enough
        self._fails = fails
        self.calls: list[bytes] = []
        self.done: list[bytes] = []
        self.all_done = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.calls.append(message.value)
        if self._fails(message, self.calls.count(message.value)):
            raise ValueError(f"cannot do {message.value!r}")
        self.done.append(message.value)
        if len(self.done) >= self._enough:
            self.all_done.set()


async def run(consumer: Consumer, work: Work, **arguments: Any) -> None:
    """Until the work is done, then close as a program does at its end."""
    async with consumer, asyncio.TaskGroup() as group:
        running = group.create_task(consumer.run(work, **arguments))
        finished = asyncio.ensure_future(work.all_done.wait())
        await asyncio.wait([running, finished], return_when=asyncio.FIRST_COMPLETED)
        finished.cancel()
        await consumer.close()


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_a_failure_that_passes_is_retried(bootstrap: str, name: str, style: str) -> None:
    async def play() -> Work:
        await fill(bootstrap, name, ["a", "b"])
        work = Work(2, lambda message, attempt: message.value == b"a" and attempt < 3)
        await run(Consumer(bootstrap, name, group=name), work, style=style, retry=QUICK)
        return work

    work = asyncio.run(play())
    assert work.calls.count(b"a") == 3
    assert sorted(work.done) == [b"a", b"b"]


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_messages_that_keep_failing_become_dead_letters(bootstrap: str, name: str, style: str) -> None:
    dead = f"{name}-dead"

    async def play() -> None:
        await fill(bootstrap, name, ["bad", "good"])
        work = Work(1, lambda message, attempt: message.value == b"bad")
        consumer = Consumer(bootstrap, name, group=name)
        await run(consumer, work, style=style, retry=QUICK, dead_letter=dead)
        assert work.done == [b"good"]
        async with Consumer(bootstrap, dead, group=dead) as reader:
            letter = await anext(reader)
        assert (letter.key, letter.value) == (b"bad", b"bad")
        assert dict(letter.headers) == {
            "__dlq.errors.topic": name.encode(),
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"0",
            "__dlq.errors.group": name.encode(),
            "__dlq.errors.delivery.count": b"3",
            "__dlq.errors.message": b"ValueError: cannot do b'bad'",
        }
        async with Admin(bootstrap) as admin:
            assert await admin.lag(name) == {(name, 0): 0}

    asyncio.run(play())


def test_undecodable_messages_are_dead_letters_at_once(bootstrap: str, name: str) -> None:
    dead = f"{name}-dead"

    async def play() -> None:
        await fill(bootstrap, name, ["{broken", "1"])
        work = Work(1, lambda message, attempt: False)
        consumer = Consumer(bootstrap, name, group=name, value_serializer=JSON)
        await run(consumer, work, retry=QUICK, dead_letter=dead)
        async with Consumer(bootstrap, dead, group=dead) as reader:
            letter = await anext(reader)
        assert letter.value == b"{broken"
        assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"1"

    asyncio.run(play())


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_without_dead_letters_a_failure_ends_it(bootstrap: str, name: str, style: str) -> None:
    async def fail(message: Message) -> None:
        if message.value == b"bad":
            raise ValueError("no")

    async def play() -> None:
        await fill(bootstrap, name, ["good", "bad"])
        with pytest.raises(HandlerFailed, match=rf"3 time\(s\) on {name}-0 offset 1 .*dead_letter="):
            async with Consumer(bootstrap, name, group=name) as consumer:
                await consumer.run(fail, style=style, retry=QUICK)  # type: ignore[arg-type]
        # The next member still finds it.
        async with Consumer(bootstrap, name, group=name) as consumer:
            assert (await anext(consumer)).value == b"bad"

    asyncio.run(play())


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_a_consumer_that_reads_on_after_a_failure_gets_the_message_again(
    bootstrap: str, name: str, style: str
) -> None:
    async def play() -> Work:
        await fill(bootstrap, name, ["a", "b", "c", "d"])
        work = Work(4, lambda message, attempt: message.value == b"b" and attempt == 1)
        consumer = Consumer(bootstrap, name, group=name)
        async with consumer:
            with pytest.raises(HandlerFailed):
                await consumer.run(work, style=style, retry=RetryPolicy(attempts=1))  # type: ignore[arg-type]
            running = asyncio.create_task(consumer.run(work, style=style))  # type: ignore[arg-type]
            await asyncio.wait_for(work.all_done.wait(), 60)
            await consumer.close()
            await running
        return work

    assert sorted(asyncio.run(play()).done) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("style", ["fifo", "parallel"])
def test_a_handler_may_close_the_consumer(bootstrap: str, name: str, style: str) -> None:
    """The run ends, the consumer leaves its group, and what was handled is committed."""

    async def play() -> list[bytes]:
        await fill(bootstrap, name, ["a", "b", "c", "d"])
        seen: list[bytes] = []
        consumer = Consumer(bootstrap, name, group=name)

        async def work(message: Message) -> None:
            seen.append(message.value)
            if len(seen) == 2:
                await consumer.close()

        await consumer.start()
        await asyncio.wait_for(consumer.run(work, style=style), 60)  # type: ignore[arg-type]
        async with Consumer(bootstrap, name, group=name) as rest, asyncio.timeout(60):
            while len(seen) < 4:
                seen += [message.value for message in await rest.poll()]
        return seen

    assert sorted(asyncio.run(play())) == [b"a", b"b", b"c", b"d"]


def test_parallel_handlers_do_run_at_the_same_time(bootstrap: str, name: str) -> None:
    async def play() -> None:
        together = asyncio.Barrier(3)
        work = Work(3, lambda message, attempt: False)

        async def meet(message: Message) -> None:
            await together.wait()
            await work(message)

        await fill(bootstrap, name, ["a", "b", "c"])
        async with Consumer(bootstrap, name, group=name) as consumer:
            running = asyncio.create_task(consumer.run(meet, style="parallel", concurrency=3))
            await asyncio.wait_for(work.all_done.wait(), 60)
            await consumer.close()
            await running

    asyncio.run(play())


def test_partitions_change_hands_only_when_their_messages_are_done(bootstrap: str, name: str) -> None:
    """A second member joins while the first is in the middle of all of its messages: nothing comes twice."""
    values = [str(i) for i in range(60)]

    async def play() -> list[bytes]:
        seen: list[bytes] = []
        joined = asyncio.Event()
        second = Consumer(bootstrap, name, group=name)

        async def slow(message: Message) -> None:
            seen.append(message.value)
            await joined.wait()

        async def quick(message: Message) -> None:
            seen.append(message.value)

        await fill(bootstrap, name, values, partition=None)
        async with Consumer(bootstrap, name, group=name) as first, asyncio.TaskGroup() as group:
            group.create_task(first.run(slow, style="parallel", concurrency=4))
            await until(lambda: len(seen) >= 4)
            async with second:
                group.create_task(second.run(quick, style="parallel"))
                joined.set()
                await until(lambda: len(set(seen)) == len(values) and bool(second.assignment()))
                await second.close()
            await first.close()
        return seen

    assert sorted(asyncio.run(play())) == sorted(value.encode() for value in values)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - librdkafka has no event for these
            await asyncio.sleep(0.01)


def test_run_commits_by_itself(bootstrap: str, name: str) -> None:
    async def play(handler: Callable[[Message], Awaitable[object]]) -> None:
        async with Consumer(bootstrap, name, group=name, auto_commit=False) as consumer:
            await consumer.run(handler)

    with pytest.raises(MisusedClient, match="leave auto_commit on"):
        asyncio.run(play(lambda message: asyncio.sleep(0)))


@pytest.mark.parametrize("arguments", [{"style": "lifo"}, {"style": "parallel", "concurrency": 0}])
def test_a_style_that_is_not_there(bootstrap: str, name: str, arguments: Any) -> None:
    async def play() -> None:
        async with Consumer(bootstrap, name, group=name) as consumer:
            await consumer.run(lambda message: asyncio.sleep(0), **arguments)

    with pytest.raises(MisusedClient, match="'fifo' or 'parallel'"):
        asyncio.run(play())
