"""Sending messages: serializers, partitions, delivery results, transactions. `Sending` has the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka import Producer as _Librdkafka

from penstock.client.deliveries import DeliveryCallback
from penstock.client.errors import (
    ClientClosed,
    ClientError,
    DeliveryFailed,
    MisusedClient,
    QueueFull,
    Refused,
    TransactionFailed,
)
from penstock.client.first_contact import FirstContact
from penstock.client.message import Delivery, Headers, Record, as_header_list, as_milliseconds, delayed
from penstock.client.partitioners import KeyHash, Keyless, Partitioner, hash_partitioner, round_robin
from penstock.client.placement import UNASSIGNED, Placement
from penstock.client.retrying import RetryPolicy
from penstock.client.sending import Sending
from penstock.client.serializers import BYTES, Encode, Serializer, encoded, encoder
from penstock.client.settings import (
    Acks,
    Compression,
    check_threshold,
    producer_config,
    transactional_config,
)
from penstock.client.small_batches import SmallBatches
from penstock.client.stopping import Stop
from penstock.client.tracing import Tracing, configured
from penstock.client.transactions import OffsetSource, Transaction, Transactions, Work

__all__ = ["DeliveryCallback", "Producer"]

T = TypeVar("T")


class Producer:
    """Sends messages to topics; use it in `async with`, or call `start` and `close`.

    Messages of one partition arrive in the order in which they were sent, and, with idempotence (the
    default), once, whatever is retried underneath.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        key_serializer: Serializer | Encode = BYTES,
        value_serializer: Serializer | Encode = BYTES,
        partitioner: KeyHash | Partitioner = "key_hash",
        keyless: Keyless = "sticky",
        acks: Acks = "all",
        idempotence: bool | None = None,
        retries: int | None = None,
        retry_backoff: float = 0.1,
        linger: float = 0.005,
        batch_size: int = 1_000_000,
        compression: Compression = "none",
        compression_threshold: int = 0,
        max_message_size: int = 1 << 20,
        delivery_timeout: float = 120.0,
        connect_timeout: float | None = 10.0,
        transactional_id: str | None = None,
        transaction_timeout: float = 60.0,
        client_id: str = "penstock",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`config` takes what has no name here (security, for example) under librdkafka's names.

        Batches whose values have less than `compression_threshold` bytes are not compressed. Values up to
        `max_message_size` bytes can be sent. Messages fail with `NotReachable` if no broker has answered
        within `connect_timeout`; None waits for `delivery_timeout` instead. With a `transactional_id`
        messages are sent in transactions, which brokers abort after `transaction_timeout`.
        """
        # Longer than other functions because it has one parameter per setting.
        self._contact = FirstContact(bootstrap, connect_timeout)
        settings = producer_config(
            bootstrap,
            acks=acks,
            idempotence=idempotence,
            retries=retries,
            retry_backoff=retry_backoff,
            linger=linger,
            batch_size=batch_size,
            compression=compression,
            max_message_size=max_message_size,
            key_hash=partitioner if isinstance(partitioner, str) else "key_hash",
            delivery_timeout=delivery_timeout,
            client_id=client_id,
            config=config or {},
        )
        settings = transactional_config(
            settings, transactional_id, transaction_timeout, compression_threshold
        )
        self._config = self._contact.configure(settings)
        self._transactional_id = transactional_id
        self._transactions: Transactions | None = None
        #: set if the producer belongs to a run whose consumer is closed
        self.stop = Stop()
        self._fatal: TransactionFailed | None = None
        self._encode_key = encoder(key_serializer)
        self._encode_value = encoder(value_serializer)
        check_threshold(compression_threshold, compression, acks)
        self._threshold = compression_threshold
        self._partitioner = partitioner
        self._keyless = keyless
        self._sending: Sending | None = None
        self._closed = False
        self._placement: Placement | None = None
        self._tracing: Tracing | None = None

    # -- life

    async def start(self) -> None:
        """Make the connection's machinery; brokers are contacted in the background.

        With a transactional id, wait until earlier producers with the same id are fenced.
        """
        assert self._sending is None, "this producer is already started"
        self._tracing = configured()
        try:
            rk = SmallBatches(self._config, self._threshold) if self._threshold else _Librdkafka(self._config)
        except KafkaException as e:
            raise MisusedClient(f"librdkafka does not accept this configuration: {e.args[0].str()}") from e
        self._sending = Sending(rk, self._contact)
        self._placement = self._new_placement(rk)
        if self._transactional_id is not None:
            await self._init_transactions(self._sending, self._transactional_id)

    async def _init_transactions(self, sending: Sending, transactional_id: str) -> None:
        forget_failures = sending.deliveries.forget_failures
        self._transactions = Transactions(sending.rk, transactional_id, self, self._fail, forget_failures)
        try:
            await self._transactions.init(sending.check_contact)
        except BaseException:
            await self.close()
            raise
        self._contact.made = True

    def _fail(self, failure: TransactionFailed) -> None:
        """A fatal error: all calls but `close` raise it from now on."""
        self._fatal, self._closed = failure, True

    def _new_placement(self, rk: Any) -> Placement | None:
        """None if librdkafka chooses all partitions."""
        chosen = self._partitioner
        if not isinstance(chosen, str):
            return Placement(lambda: chosen, rk)
        if not self._threshold and self._keyless == "sticky":
            return None
        return Placement(
            lambda: hash_partitioner(chosen, self._keyless), rk, only_keyless=not self._threshold
        )

    async def close(self) -> None:
        """Send the queued messages, then end. Raises as `flush` does. Closing twice is harmless."""
        if self._sending is None:
            return
        try:
            if self._transactions is not None and self._fatal is None:
                await self._transactions.close()
            if self._fatal is None:
                await self.flush()
        finally:
            sending, self._sending = self._sending, None
            self._placement, self._transactions, self._closed = None, None, True
            await sending.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- sending

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
        partition: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> Delivery:
        """Send, and wait until it is acknowledged; waits too while the queue is full.

        `delay` or `deliver_at` are for delay topics: the broker moves the message to the target topic then.
        """
        result: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        record = Record(
            value=value,
            key=key,
            headers=delayed(headers, delay, deliver_at),
            timestamp=timestamp,
            partition=partition,
        )
        await self.enqueue(topic, record, partial(_settle, result))
        return await result

    def send_nowait(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
        partition: int | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Put into the queue, or raise `QueueFull`.

        The callback learns what became of it. Failures without a callback are raised by the next `flush`.
        """
        headers = delayed(headers, delay, deliver_at)
        self._produce(topic, value, key, headers, timestamp, partition, callback)

    async def send_batch(self, topic: str, records: Iterable[Record]) -> list[Delivery]:
        """Send all and wait for all; where they went, in order. `DeliveryFailed` if some did not arrive."""
        results: list[asyncio.Future[Delivery]] = []
        for record in records:
            result: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
            results.append(result)
            await self.enqueue(topic, record, partial(_settle, result))
        outcomes = await asyncio.gather(*results, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, ClientError)]
        if errors:
            raise DeliveryFailed(len(errors), errors[0])
        return [outcome for outcome in outcomes if isinstance(outcome, Delivery)]

    async def flush(self) -> None:
        """Wait until every message is delivered or has failed; `delivery_timeout` limits the time.

        Raises `DeliveryFailed` if a message without a callback failed.
        """
        await self._running().flush()

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; a partitioner of yours needs it known before `send_nowait`."""
        placement = self._placement or Placement(round_robin, self._running().rk)
        return await placement.learn(topic)

    # -- transactions

    def transaction(self, *consumers: OffsetSource) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that is committed at the end of `async with`, or aborted if the body raises.

        The offsets of these consumers are committed with it. After an abort they deliver their messages
        again. An abortable error of a broker raises `TransactionAborted`, a fatal one `TransactionFailed`.
        """
        return self._transactional().scope(*consumers)

    async def transact(self, work: Work[T], *consumers: OffsetSource, retry: RetryPolicy | None = None) -> T:
        """Call `work` in a transaction, and again in a new one if brokers abort it."""
        return await self._transactional().transact(work, consumers, retry or RetryPolicy())

    @property
    def is_transactional(self) -> bool:
        return self._transactional_id is not None

    @property
    def has_committed(self) -> bool:
        """Returns true if the last transaction was committed, and none is open."""
        return self._transactions is not None and self._transactions.committed is True

    def _transactional(self) -> Transactions:
        self._running()
        if self._transactions is None:
            raise MisusedClient("this producer has no transactions: pass transactional_id")
        return self._transactions

    # -- the way through

    def _running(self) -> Sending:
        if self._closed:
            raise self._fatal or ClientClosed("producer")
        if self._sending is None:
            raise MisusedClient("this producer has not started: use `async with`, or await start()")
        return self._sending

    async def enqueue(self, topic: str, record: Record, callback: DeliveryCallback) -> None:
        """Put into the queue as soon as there is room; the callback learns of every failure."""
        while True:
            try:
                if self._placement is not None and record.partition is None:
                    await self._placement.learn(topic)
                return self._produce(
                    topic,
                    record.value,
                    record.key,
                    record.headers,
                    record.timestamp,
                    record.partition,
                    callback,
                )
            except QueueFull:
                await self._running().next_tick()
            except ClientError as e:
                return callback(None, e)

    async def enqueue_raw(self, topic: str, record: Record, callback: DeliveryCallback) -> None:
        """As `enqueue`, for a key and a value that are bytes already."""
        extra: dict[str, Any] = {"headers": as_header_list(record.headers)} if record.headers else {}
        if record.timestamp is not None:
            extra["timestamp"] = as_milliseconds(record.timestamp)
        partition = UNASSIGNED if record.partition is None else record.partition
        while True:
            try:
                return self._put(self._running(), topic, record.value, record.key, partition, callback, extra)
            except QueueFull:
                await self._running().next_tick()
            except ClientError as e:
                return callback(None, e)

    def _produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        timestamp: datetime | None,
        partition: int | None,
        callback: DeliveryCallback | None,
    ) -> None:
        sending = self._running()
        raw_key = encoded("key", key, self._encode_key)
        raw_value = encoded("value", value, self._encode_value)
        if partition is None:
            partition = UNASSIGNED if self._placement is None else self._placement.place(topic, raw_key)
        extra: dict[str, Any] = {}
        if timestamp is not None:
            extra["timestamp"] = as_milliseconds(timestamp)
        if headers:
            extra["headers"] = as_header_list(headers)
        tracing = self._tracing
        if tracing is None:
            return self._put(sending, topic, raw_value, raw_key, partition, callback, extra)
        span = tracing.sending(topic, extra.setdefault("headers", []))
        traced = partial(_sent, tracing, span, callback or sending.deliveries.note_failure)
        try:
            self._put(sending, topic, raw_value, raw_key, partition, traced, extra)
        except Refused as e:
            tracing.sent(span, e, None)
            raise

    def _put(
        self,
        sending: Sending,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: DeliveryCallback | None,
        extra: dict[str, Any],
    ) -> None:
        if self._transactions is not None and not self._transactions.is_open:
            raise MisusedClient("a transactional producer sends in `async with producer.transaction()` only")
        sending.put(topic, value, key, partition, callback, extra)


def _sent(
    tracing: Tracing,
    span: Any,
    callback: DeliveryCallback,
    delivery: Delivery | None,
    error: ClientError | None,
) -> None:
    tracing.sent(span, error, delivery)
    callback(delivery, error)


def _settle(result: asyncio.Future[Delivery], delivery: Delivery | None, error: ClientError | None) -> None:
    if result.done():  # the waiting task was cancelled
        return
    if error is not None:
        result.set_exception(error)
    elif delivery is not None:
        result.set_result(delivery)
