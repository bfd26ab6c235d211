"""Exactly-once runs: with a broker, and with a producer and a reader that answer what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.client import (
    Admin,
    Consumer,
    HandlerFailed,
    Message,
    MisusedClient,
    Producer,
    ProducerFenced,
    Record,
    RetryPolicy,
    Transaction,
    TransactionAborted,
)
from penstock.client.errors import Refused
from penstock.client.exactly_once import ExactlyOnce, Job, Limits
from penstock.client.transactional_reader import is_member
from penstock.testing import broker
from tests.client.conftest import QUICK_GROUPS
from tests.client.fakes import FakeProducer, Reader
from tests.interop.isolation import read

QUICK = RetryPolicy(attempts=3, backoff=0.001)
STYLES = pytest.mark.parametrize("style", ["fifo", "parallel"])


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(config={**QUICK_GROUPS, "transaction.state.log.num.partitions": "4"}) as running:
        yield running.bootstrap


async def fill(bootstrap: str, topic: str, count: int, partition: int | None = 0) -> None:
    records = [Record(value=str(n), key=str(n), partition=partition) for n in range(count)]
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, records)


class Copy:
    """A handler that copies messages, fails on some, and closes the consumer after enough of them."""

    def __init__(self, consumer: Consumer, out: str, enough: int) -> None:
        self._consumer = consumer
        self._out = out
        self._enough = enough
        self.calls: list[bytes] = []
        self.done: set[bytes] = set()
        self.fails: Callable[[bytes, int], bool] = lambda value, attempt: False

    async def __call__(self, message: Message, transaction: Transaction) -> None:
        self.calls.append(message.value)
        await transaction.send(self._out, message.value, key=message.key, partition=0)
        if self.fails(message.value, self.calls.count(message.value)):
            raise ValueError(f"cannot do {message.value!r}")
        self.done.add(message.value)
        if len(self.done) >= self._enough:
            await self._consumer.close()


@STYLES
def test_output_and_offsets_are_committed_together(bootstrap: str, name: str, style: Any) -> None:
    async def play() -> None:
        await fill(bootstrap, name, 20)
        consumer = Consumer(bootstrap, name, group=name, delivery="exactly_once", max_batch=6)
        copy = Copy(consumer, f"{name}-out", 20)
        async with consumer:
            await consumer.run(copy, style=style)
        assert len(copy.calls) == 20
        async with Admin(bootstrap) as admin:
            assert await admin.offsets(name) == {(name, 0): 20}

    asyncio.run(asyncio.wait_for(play(), 60))
    assert sorted(map(int, read(bootstrap, f"{name}-out"))) == list(range(20))


@STYLES
def test_messages_that_a_failed_handler_has_sent_are_rolled_back(
    bootstrap: str, name: str, style: Any
) -> None:
    """The output has each value once, though the handler has sent one of them three times."""

    async def play() -> Copy:
        await fill(bootstrap, name, 10)
        consumer = Consumer(bootstrap, name, group=name, delivery="exactly_once")
        copy = Copy(consumer, f"{name}-out", 99)
        copy.fails = lambda value, attempt: value == b"4" and attempt < 3
        async with consumer, Consumer(bootstrap, f"{name}-out", group=f"{name}-out") as reader:
            running = asyncio.create_task(consumer.run(copy, style=style, retry=QUICK))
            copied = 0
            while copied < 10:
                copied += len(await reader.poll())
            await consumer.close()
            await running
        return copy

    copy = asyncio.run(asyncio.wait_for(play(), 60))
    assert copy.calls.count(b"4") == 3
    assert sorted(map(int, read(bootstrap, f"{name}-out"))) == list(range(10))


@STYLES
def test_dead_letters_are_in_the_transaction(bootstrap: str, name: str, style: Any) -> None:
    async def play() -> None:
        await fill(bootstrap, name, 10)
        consumer = Consumer(bootstrap, name, group=name, delivery="exactly_once")
        copy = Copy(consumer, f"{name}-out", 10)
        copy.fails = lambda value, attempt: value == b"9"
        async with consumer:
            running = asyncio.create_task(
                consumer.run(copy, style=style, retry=QUICK, dead_letter=f"{name}-dead")
            )
            async with Consumer(bootstrap, f"{name}-dead", group=f"{name}-dead") as reader:
                letter = await anext(reader)
            await consumer.close()
            await running
        assert (letter.key, letter.value) == (b"9", b"9")
        assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"3"
        assert copy.calls.count(b"9") == 3
        async with Admin(bootstrap) as admin:
            assert await admin.offsets(name) == {(name, 0): 10}

    asyncio.run(asyncio.wait_for(play(), 60))
    assert sorted(map(int, read(bootstrap, f"{name}-out"))) == list(range(9))


@STYLES
def test_without_dead_letters_a_failure_ends_it(bootstrap: str, name: str, style: Any) -> None:
    """Messages before the failed one are committed; the failed one is delivered to the next run."""

    async def play() -> None:
        await fill(bootstrap, name, 3)
        async with Consumer(bootstrap, name, group=name, delivery="exactly_once") as consumer:
            copy = Copy(consumer, f"{name}-out", 3)
            copy.fails = lambda value, attempt: value == b"2" and attempt <= 3
            with pytest.raises(HandlerFailed, match=rf"3 time\(s\) on {name}-0 offset 2 .*dead_letter="):
                await consumer.run(copy, style=style, retry=QUICK)
            async with Admin(bootstrap) as admin:
                assert await admin.offsets(name) == {(name, 0): 2}
            await consumer.run(copy, style=style, retry=QUICK)

    asyncio.run(asyncio.wait_for(play(), 60))
    assert sorted(read(bootstrap, f"{name}-out")) == [b"0", b"1", b"2"]


def test_a_producer_of_the_caller(bootstrap: str, name: str) -> None:
    async def play() -> None:
        await fill(bootstrap, name, 3)
        async with (
            Producer(bootstrap, transactional_id=name, value_serializer=lambda n: b"<%d>" % n) as producer,
            Consumer(bootstrap, name, group=name, delivery="exactly_once") as consumer,
        ):

            async def handle(message: Message, transaction: Transaction) -> None:
                await transaction.send(f"{name}-out", int(message.value), partition=0)
                if message.value == b"2":
                    await consumer.close()

            await consumer.run(handle, producer=producer)
            async with producer.transaction() as transaction:
                await transaction.send(f"{name}-out", 9, partition=0)

    asyncio.run(asyncio.wait_for(play(), 60))
    assert read(bootstrap, f"{name}-out") == [b"<0>", b"<1>", b"<2>", b"<9>"]


@STYLES
def test_two_members_while_partitions_move(bootstrap: str, name: str, style: Any) -> None:
    """A second member joins and leaves again in the middle: each message is in the output once."""
    count = 300

    async def play() -> None:
        await fill(bootstrap, name, count, partition=None)
        seen: list[bytes] = []
        everything = asyncio.Event()

        async def handle(message: Message, transaction: Transaction) -> None:
            await transaction.send(f"{name}-out", message.value, partition=0)
            await asyncio.sleep(0.002)  # work, so that members change in its middle
            seen.append(message.value)
            if len(set(seen)) == count:
                everything.set()

        def member() -> Consumer:
            return Consumer(
                bootstrap, name, group=name, delivery="exactly_once", max_batch=10, commit_interval=0.05
            )

        first, second = member(), member()
        async with first, asyncio.TaskGroup() as group:
            group.create_task(first.run(handle, style=style))
            await until(lambda: len(seen) > 10)
            async with second:
                group.create_task(second.run(handle, style=style))
                await until(lambda: bool(second.assignment()) or everything.is_set())
                await until(lambda: len(set(seen)) > 200)
                await second.close()
            await everything.wait()
            await first.close()

    asyncio.run(asyncio.wait_for(play(), 120))
    assert sorted(map(int, read(bootstrap, f"{name}-out"))) == list(range(count))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - librdkafka has no event for these
            await asyncio.sleep(0.01)


def test_a_partition_that_is_lost_aborts(bootstrap: str, name: str) -> None:
    """The offsets carry the membership of the fetch: a member that has left commits nothing."""

    async def play() -> None:
        await fill(bootstrap, name, 3)
        async with Producer(bootstrap, transactional_id=name) as producer:
            consumer = Consumer(bootstrap, name, group=name, delivery="exactly_once")
            async with consumer:
                while not (messages := await consumer.poll()):
                    pass
                before = consumer.transaction_offsets()
            with pytest.raises(TransactionAborted):
                async with producer.transaction() as transaction:
                    for message in messages:
                        await transaction.send(f"{name}-out", message.value, partition=0)
                    await transaction.add_offsets(before)
        async with Admin(bootstrap) as admin:
            assert await admin.offsets(name) == {}

    asyncio.run(asyncio.wait_for(play(), 60))
    assert read(bootstrap, f"{name}-out") == []


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"auto_commit": False}, "leave auto_commit on"),
        ({"transaction_timeout": 9.0}, "at least twice commit_interval"),
    ],
)
def test_settings_that_cannot_be(arguments: Any, advice: str) -> None:
    with pytest.raises(MisusedClient, match=advice):
        Consumer("x:1", group="g", delivery="exactly_once", **arguments)


def test_members_are_known_by_their_metadata() -> None:
    assert not is_member(b"")
    assert not is_member(b"CGMDv2:\xff\xff\xff\xffgroup\0\0\1")
    assert is_member(b"CGMDv2:\x05\0\0\0group\0member\0\1")


# -- with errors


class Case:
    """A run over fakes."""

    def __init__(self, producer: FakeProducer, dead_letter: str | None = None) -> None:
        self.reader = Reader()
        self.producer = producer
        self.calls: list[int] = []
        self.fails_on: set[int] = set()
        job = Job(
            handler=self._handle,
            concurrency=None,
            retry=RetryPolicy(attempts=2, backoff=0),
            dead_letter=dead_letter,
            group="g",
            tracing=None,
        )
        self._run = ExactlyOnce(job, Limits(60.0, 120.0), cast(Any, self.reader), cast(Any, producer), None)

    async def _handle(self, message: Message, transaction: Transaction) -> None:
        self.calls.append(message.offset)
        if message.offset in self.fails_on:
            raise ValueError

    def run(self) -> list[int]:
        """The committed offsets, one for each transaction."""
        asyncio.run(self._run.run())
        return [offset for tx in self.producer.committed for offset in tx.offsets.values()]


ABORTED = TransactionAborted("coordinator moved", 16)


def test_an_aborted_transaction_is_repeated_without_an_attempt() -> None:
    case = Case(FakeProducer(ABORTED, ABORTED, ABORTED))
    assert case.run() == [3, 4]
    assert case.calls == [0, 1, 2] * 4 + [3]


def test_a_message_that_fails_gets_transactions_of_its_own() -> None:
    """Those before it are repeated once, whatever the number of attempts."""
    case = Case(FakeProducer(), dead_letter="dead")
    case.fails_on = {1}
    assert case.run() == [1, 2, 4]
    assert case.calls == [0, 1, 0, 1, 2, 3]
    assert [tx.sent for tx in case.producer.committed] == [[], [("dead", 1)], []]


def test_a_message_that_cannot_be_delivered_counts_for_its_handler() -> None:
    case = Case(FakeProducer(ABORTED, None, ABORTED), dead_letter="dead")
    case.producer.failures = [(case.reader.waiting[1], Refused("too large", 10))]
    assert case.run() == [1, 2, 4]
    assert case.calls == [0, 1, 2, 0, 1, 2, 3]


def test_a_message_that_was_not_delivered_in_time_does_not() -> None:
    case = Case(FakeProducer(ABORTED, ABORTED, ABORTED))
    case.producer.failures = [(case.reader.waiting[1], Refused("timed out", -192))]
    assert case.run() == [3, 4]


def test_a_missing_permission_ends_the_run() -> None:
    case = Case(FakeProducer(TransactionAborted("denied", 30)))
    with pytest.raises(TransactionAborted, match="denied"):
        case.run()


@pytest.mark.parametrize("committed", [False, True])
def test_the_groups_offsets_decide_an_unknown_outcome(committed: bool) -> None:
    case = Case(FakeProducer(ProducerFenced("slow", outcome_unknown=True)))
    case.reader.committed = committed
    assert case.run() == ([4] if committed else [3, 4])
    assert case.producer.replaced == 1


def test_a_producer_that_lost_its_id_ends_the_run() -> None:
    case = Case(FakeProducer(ProducerFenced("another")))
    case.producer.replaceable = False
    with pytest.raises(ProducerFenced):
        case.run()
    assert len(case.reader.waiting) == 4


def test_a_handler_has_less_time_than_its_transaction() -> None:
    async def sleep(message: Message, transaction: Transaction) -> None:
        await asyncio.sleep(60)

    job = Job(
        handler=sleep,
        concurrency=None,
        retry=RetryPolicy(attempts=1),
        dead_letter=None,
        group="g",
        tracing=None,
    )
    run = ExactlyOnce(job, Limits(0.01, 0.02), cast(Any, Reader()), cast(Any, FakeProducer()), None)
    with pytest.raises(HandlerFailed, match=r"took longer than 80% of .* raise transaction_timeout"):
        asyncio.run(run.run())
