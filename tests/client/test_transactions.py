"""Transactions of the producer: with a broker, and with a librdkafka that answers what a test wants."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client import (
    Admin,
    Consumer,
    DeliveryFailed,
    Message,
    MisusedClient,
    NotReachable,
    Producer,
    ProducerFenced,
    Record,
    RetryPolicy,
    Transaction,
    TransactionAborted,
    TransactionFailed,
)
from penstock.client import transactions as module
from penstock.client.errors import Refused
from penstock.client.transactions import GroupOffsets
from penstock.model.ids import TopicPartition
from tests.client.fakes import RETRIABLE, Librdkafka, Outlet, transactions
from tests.interop.isolation import read

QUICK = RetryPolicy(attempts=3, backoff=0.001)
ABORTABLE = KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "moved", txn_requires_abort=True))
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
DENIED = KafkaException(KafkaError(53, "denied", fatal=True))


# -- with a broker


def test_a_transaction_is_committed_or_aborted_as_a_whole(bootstrap: str, name: str) -> None:
    async def play() -> None:
        async with Producer(bootstrap, transactional_id=name) as producer:
            async with producer.transaction() as tx:
                await tx.send(name, "a", partition=0)
                await producer.send(name, "b", partition=0)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx:
                    await tx.send(name, "rolled back", partition=0)
                    producer.send_nowait(name, "too", partition=0)
                    raise ZeroDivisionError
            async with producer.transaction() as tx:
                await tx.send(name, "c", partition=0)

    asyncio.run(play())
    assert read(bootstrap, name) == [b"a", b"b", b"c"]


def test_delayed_messages_of_a_transaction(bootstrap: str, name: str) -> None:
    """They reach the target if the transaction is committed."""
    target, later = f"{name}.target", f"{name}.later"

    async def play() -> list[Any]:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(target, partitions=1)
            config = {"penstock.delay.target": target, "retention.ms": "-1"}
            await admin.create_topic(later, partitions=1, config=config)
        async with Producer(bootstrap, transactional_id=name) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as tx:
                    await tx.send(later, "aborted", deliver_at=datetime.now(UTC))
                    raise ZeroDivisionError
            async with producer.transaction() as tx:
                await tx.send(later, "committed", delay=0.01)
            async with producer.transaction() as tx:
                await tx.send(later, "last", delay=0.2)
        async with Consumer(bootstrap, target, group=name) as consumer:
            return [(await anext(consumer)).value for _ in range(2)]

    assert asyncio.run(play()) == [b"committed", b"last"]


def test_a_newer_producer_fences_the_older_one(bootstrap: str, name: str) -> None:
    async def play() -> None:
        older = Producer(bootstrap, transactional_id=name, config={"log_level": 0})
        await older.start()
        async with Producer(bootstrap, transactional_id=name) as newer:
            with pytest.raises(ProducerFenced, match=rf"{name}.*newer producer .*id of its own"):
                async with older.transaction() as tx:
                    await tx.send(name, "zombie", partition=0)
            with pytest.raises(ProducerFenced):
                older.transaction()
            with pytest.raises(ProducerFenced):
                await older.send(name, "zombie", partition=0)
            await older.close()
            async with newer.transaction() as tx:
                await tx.send(name, "new", partition=0)

    asyncio.run(play())
    assert read(bootstrap, name) == [b"new"]


def test_offsets_of_a_consumer_are_part_of_it(bootstrap: str, name: str) -> None:
    """After an abort the consumer delivers the same messages again, though its position was behind them."""
    out = f"{name}-out"

    async def copy(consumer: Consumer, producer: Producer, *, fail: bool) -> list[bytes]:
        messages: list[Message] = []
        while not messages:
            messages = await consumer.poll(2)
        async with producer.transaction(consumer) as tx:
            for message in messages:
                await tx.send(out, message.value, partition=0)
            if fail:
                raise ZeroDivisionError
        return [message.value for message in messages]

    async def play() -> None:
        async with Producer(bootstrap) as plain:
            await plain.send_batch(name, [Record(value=str(n), partition=0) for n in range(4)])
        async with (
            Producer(bootstrap, transactional_id=name) as producer,
            Consumer(bootstrap, name, group=name, delivery="exactly_once") as consumer,
        ):
            assert await copy(consumer, producer, fail=False) == [b"0", b"1"]
            with pytest.raises(ZeroDivisionError):
                await copy(consumer, producer, fail=True)
            assert await copy(consumer, producer, fail=False) == [b"2", b"3"]
            assert await consumer.committed() == {TopicPartition(name, 0): 4}
            with pytest.raises(MisusedClient, match="commits in transactions"):
                await consumer.commit()

    asyncio.run(play())
    assert read(bootstrap, out) == [b"0", b"1", b"2", b"3"]


def test_a_message_that_is_not_delivered_aborts_the_transaction(bootstrap: str, name: str) -> None:
    async def play() -> None:
        async with Producer(bootstrap, transactional_id=name) as producer:
            await producer.partitions(name)
            with pytest.raises(TransactionAborted, match=r"UNKNOWN_PARTITION.*run it again"):
                async with producer.transaction() as tx:
                    await tx.send(name, "good", partition=0)
                    await tx.send(name, "bad", partition=99)
            async with producer.transaction() as tx:
                await tx.send(name, "next", partition=0)

    asyncio.run(play())
    assert read(bootstrap, name) == [b"next"]


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"transactional_id": "x", "acks": 1}, "transactions need idempotence"),
        ({"transactional_id": ""}, "transactional_id is empty"),
        (
            {"transactional_id": "x", "compression": "lz4", "compression_threshold": 9},
            "does not work with transactions",
        ),
    ],
)
def test_settings_that_exclude_transactions(arguments: Any, advice: str) -> None:
    with pytest.raises(MisusedClient, match=advice):
        Producer("x:1", **arguments)


def test_misuse(bootstrap: str, name: str) -> None:
    async def play() -> None:
        async with Producer(bootstrap) as plain:
            with pytest.raises(MisusedClient, match="pass transactional_id"):
                plain.transaction()
        async with Producer(bootstrap, transactional_id=name) as producer:
            with pytest.raises(MisusedClient, match=r"sends in `async with producer.transaction\(\)`"):
                await producer.send(name, "outside")
            async with producer.transaction():
                with pytest.raises(MisusedClient, match="has an open transaction"):
                    async with producer.transaction():
                        pass
            async with Consumer(bootstrap, name, group=name) as consumer:
                with pytest.raises(MisusedClient, match="delivery='exactly_once'"):
                    async with producer.transaction(consumer):
                        pass

    asyncio.run(play())


def test_a_wrong_address_is_reported() -> None:
    async def play() -> None:
        async with Producer("127.0.0.1:1", transactional_id="x", connect_timeout=0.2):
            pass

    with pytest.raises(NotReachable, match=r"no broker responded at 127\.0\.0\.1:1"):
        asyncio.run(asyncio.wait_for(play(), 60))


# -- with errors


class Source:
    """A consumer that notes how transactions ended."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def transaction_offsets(self) -> GroupOffsets:
        return GroupOffsets({TopicPartition("t", 0): 5}, b"")

    async def transaction_ended(self, committed: bool) -> None:
        self.ended.append(committed)


def test_a_call_without_an_outcome_is_resumed() -> None:
    async def play() -> None:
        rk = Librdkafka(commit_transaction=[RETRIABLE, RETRIABLE])
        async with transactions(rk).scope():
            pass
        assert rk.calls == ["begin_transaction", *["commit_transaction"] * 3]

    asyncio.run(play())


def test_offsets_are_sent_when_all_messages_are_acknowledged() -> None:
    async def play() -> None:
        rk, source = Librdkafka(), Source()
        made = transactions(rk)
        async with made.scope(source):
            pass
        assert rk.calls == ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
        assert isinstance(made.outlet, Outlet)
        assert made.outlet.flushed == 1
        assert source.ended == [True]

    asyncio.run(play())


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_an_abortable_error_aborts_and_a_new_transaction_succeeds(call: str) -> None:
    async def play() -> None:
        rk, source = Librdkafka(**{call: [ABORTABLE]}), Source()
        tries: list[Transaction] = []

        async def work(transaction: Transaction) -> str:
            tries.append(transaction)
            return "done"

        assert await transactions(rk).transact(work, (source,), QUICK) == "done"
        assert len(tries) == 2
        assert rk.calls.count("abort_transaction") == 1
        assert source.ended == [False, True]

    asyncio.run(play())


def test_attempts_are_limited() -> None:
    async def play() -> None:
        rk = Librdkafka(commit_transaction=[ABORTABLE] * 9)
        with pytest.raises(TransactionAborted, match="ILLEGAL_GENERATION") as raised:
            await transactions(rk).transact(lambda tx: asyncio.sleep(0), (), QUICK)
        assert raised.value.code == KafkaError.ILLEGAL_GENERATION
        assert rk.calls.count("abort_transaction") == 3

    asyncio.run(play())


@pytest.mark.parametrize("error", [Refused("no", 29), DeliveryFailed(1, Refused("no", 29))])
def test_a_refusal_in_the_body_is_abortable(error: Exception) -> None:
    async def play() -> None:
        rk = Librdkafka()
        with pytest.raises(TransactionAborted) as raised:
            async with transactions(rk).scope():
                raise error
        assert raised.value.code == 29
        assert raised.value.__cause__ is error

    asyncio.run(play())


@pytest.mark.parametrize(("error", "kind"), [(FENCED, ProducerFenced), (DENIED, TransactionFailed)])
def test_a_fatal_error_closes_the_producer(error: KafkaException, kind: type[Exception]) -> None:
    async def play() -> None:
        rk, fatal, source = Librdkafka(commit_transaction=[error]), list[TransactionFailed](), Source()
        with pytest.raises(kind) as raised:
            async with transactions(rk, fatal).scope(source):
                pass
        assert fatal == [raised.value]
        assert fatal[0].outcome_unknown
        assert source.ended == []  # it may be committed
        assert "abort_transaction" not in rk.calls

    asyncio.run(play())


def test_a_fatal_error_before_the_commit_rolls_back() -> None:
    async def play() -> None:
        rk, source = Librdkafka(send_offsets_to_transaction=[FENCED]), Source()
        with pytest.raises(ProducerFenced) as raised:
            async with transactions(rk).scope(source):
                pass
        assert not raised.value.outcome_unknown
        assert source.ended == [False]

    asyncio.run(play())


def test_a_commit_without_an_outcome_ends_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_TIMEOUT_S", 0.0)

    async def play() -> None:
        rk, fatal = Librdkafka(commit_transaction=[RETRIABLE] * 9), list[TransactionFailed]()
        with pytest.raises(TransactionFailed, match="same transactional_id, which completes"):
            async with transactions(rk, fatal).scope():
                pass
        assert fatal[0].outcome_unknown
        assert fatal[0].is_timeout

    asyncio.run(play())


@pytest.mark.parametrize("error", [None, ABORTABLE])
def test_a_commit_is_not_interrupted(error: KafkaException | None) -> None:
    """A task that is cancelled during the commit waits for the outcome, which its consumer gets."""

    async def play() -> None:
        rk, source = Librdkafka(commit_transaction=[error]), Source()
        made = transactions(rk)

        async def work() -> None:
            async with made.scope(source):
                pass

        task = asyncio.create_task(work())
        loop = asyncio.get_running_loop()
        rk.in_commit = lambda: (loop.call_soon_threadsafe(task.cancel), None)[1]
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made.committed is (error is None)
        assert source.ended == [error is None]

    asyncio.run(play())
