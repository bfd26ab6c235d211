"""Sending messages.

librdkafka batches, retries and talks to brokers on threads of its own, and says what became of a message when
it is polled. As long as something is on its way the event loop polls it every millisecond: callbacks then
run on the loop's own thread, many per turn. A thread that polls would fight the loop for the interpreter,
once per message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as _Librdkafka

from penstock.client.errors import (
    ClientClosed,
    ClientError,
    DeliveryFailed,
    MisusedClient,
    NotReachable,
    QueueFull,
    translated,
)
from penstock.client.first_contact import FirstContact
from penstock.client.message import Delivery, Headers, Record, as_header_list, as_milliseconds
from penstock.client.partitioners import KeyHash, Keyless, Partitioner, hash_partitioner, round_robin
from penstock.client.placement import UNASSIGNED, Placement
from penstock.client.serializers import BYTES, Encode, Serializer, encoded, encoder
from penstock.client.settings import Acks, Compression, check_threshold, producer_config
from penstock.client.small_batches import SmallBatches
from penstock.client.tracing import Tracing, configured

__all__ = ["DeliveryCallback", "Producer"]

#: Called on the event loop with where the message went, or with why it did not go.
DeliveryCallback: TypeAlias = Callable[[Delivery | None, ClientError | None], None]
_POLL_INTERVAL = 0.001
_PURGE_TIMEOUT = 2.0
#: the error of librdkafka for purged messages
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


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
        client_id: str = "penstock",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`config` takes what has no name here (security, for example) under librdkafka's names.

        Batches whose values have less than `compression_threshold` bytes are not compressed. Values up to
        `max_message_size` bytes can be sent. Messages fail with `NotReachable` if no broker has answered
        within `connect_timeout`; None waits for `delivery_timeout` instead.
        """
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
        self._config = self._contact.configure(settings)
        self._unreachable: NotReachable | None = None
        self._verifying: asyncio.Task[None] | None = None
        self._encode_key = encoder(key_serializer)
        self._encode_value = encoder(value_serializer)
        check_threshold(compression_threshold, compression, acks)
        self._threshold = compression_threshold
        self._partitioner = partitioner
        self._keyless = keyless
        self._rk: Any = None
        self._closed = False
        self._placement: Placement | None = None
        self._tracing: Tracing | None = None
        #: results to deliver on the loop: (receiver, librdkafka's error or None, its message)
        self._reports: deque[tuple[DeliveryCallback, Any, Any]] = deque()
        self._ticking: asyncio.TimerHandle | None = None
        self._ticked: asyncio.Future[None] | None = None
        self._unwatched_failures = 0
        self._first_unwatched: ClientError | None = None

    # -- life

    async def start(self) -> None:
        """Make the connection's machinery; brokers are contacted in the background."""
        assert self._rk is None, "this producer is already started"
        self._loop = asyncio.get_running_loop()
        self._tracing = configured()
        try:
            self._rk = (
                SmallBatches(self._config, self._threshold) if self._threshold else _Librdkafka(self._config)
            )
        except KafkaException as e:
            raise MisusedClient(f"librdkafka does not accept this configuration: {e.args[0].str()}") from e
        self._contact.begin(self._loop.time())
        self._placement = self._new_placement()

    def _new_placement(self) -> Placement | None:
        """None if librdkafka chooses all partitions."""
        chosen = self._partitioner
        if not isinstance(chosen, str):
            return Placement(lambda: chosen, self._rk)
        if not self._threshold and self._keyless == "sticky":
            return None
        return Placement(
            lambda: hash_partitioner(chosen, self._keyless), self._rk, only_keyless=not self._threshold
        )

    async def close(self) -> None:
        """Send what is left, then end. Raises as `flush` does. Closing twice is harmless."""
        if self._rk is None:
            return
        try:
            await self.flush()
        finally:
            if self._ticking is not None:
                self._ticking.cancel()
            if self._verifying is not None:
                await self._verifying
            # Messages are left only if the flush was cancelled; their senders must get an error.
            self._rk.purge()
            # librdkafka's threads report what was purged in their own time.
            deadline = self._loop.time() + _PURGE_TIMEOUT
            while len(self._rk) and self._loop.time() < deadline:
                self._rk.poll(0)
                await asyncio.sleep(_POLL_INTERVAL)
            self._rk.poll(0)
            self._tell()
            last_reference = [self._rk]
            self._rk, self._placement, self._closed = None, None, True
            # Destroying it joins librdkafka's threads.
            await asyncio.to_thread(last_reference.clear)

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
    ) -> Delivery:
        """Send, and wait until it is acknowledged; waits too while the queue is full."""
        result: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        record = Record(value=value, key=key, headers=headers, timestamp=timestamp, partition=partition)
        await self._enqueue(topic, record, partial(_settle, result))
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
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Put into the queue, or raise `QueueFull`.

        The callback learns what became of it. Failures without a callback are raised by the next `flush`.
        """
        self._produce(topic, value, key, headers, timestamp, partition, callback)

    async def send_batch(self, topic: str, records: Iterable[Record]) -> list[Delivery]:
        """Send all and wait for all; where they went, in order. `DeliveryFailed` if some did not arrive."""
        results: list[asyncio.Future[Delivery]] = []
        for record in records:
            result: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
            results.append(result)
            await self._enqueue(topic, record, partial(_settle, result))
        outcomes = await asyncio.gather(*results, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, ClientError)]
        if errors:
            raise DeliveryFailed(len(errors), errors[0])
        return [outcome for outcome in outcomes if isinstance(outcome, Delivery)]

    async def flush(self) -> None:
        """Wait until every message is delivered or has failed; `delivery_timeout` limits the time.

        Raises `DeliveryFailed` if a message without a callback failed.
        """
        rk = self._running()
        while not self._contact.made and len(rk):
            # Each turn polls, and fails what waits for a broker that was never there.
            await self._next_tick()
        await asyncio.to_thread(rk.flush)
        self._tell()
        first, count = self._first_unwatched, self._unwatched_failures
        self._first_unwatched, self._unwatched_failures = None, 0
        if first is not None:
            raise DeliveryFailed(count, first)

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; a partitioner of yours needs it known before `send_nowait`."""
        placement = self._placement or Placement(round_robin, self._running())
        return await placement.learn(topic)

    # -- the way through

    def _running(self) -> Any:
        if self._closed:
            raise ClientClosed("producer")
        if self._rk is None:
            raise MisusedClient("this producer has not started: use `async with`, or await start()")
        return self._rk

    async def _enqueue(self, topic: str, record: Record, callback: DeliveryCallback) -> None:
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
                await self._next_tick()
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
        rk = self._running()
        raw_key = encoded("key", key, self._encode_key)
        raw_value = encoded("value", value, self._encode_value)
        if partition is None:
            partition = UNASSIGNED if self._placement is None else self._placement.place(topic, raw_key)
        extra: dict[str, Any] = {}
        if timestamp is not None:
            extra["timestamp"] = as_milliseconds(timestamp)
        if headers:
            extra["headers"] = as_header_list(headers)
        tracing, span = self._tracing, None
        if tracing is not None:
            span = tracing.sending(topic, extra.setdefault("headers", []))
            callback = partial(self._sent, tracing, span, callback or self._note_failure)
        on_delivery = self._unwatched if callback is None else partial(self._report, callback)
        try:
            rk.produce(topic, raw_value, raw_key, partition, on_delivery, **extra)
        except BufferError:
            raise QueueFull from None
        except KafkaException as e:
            error = translated(e)
            if tracing is not None and span is not None:
                tracing.sent(span, error, None)
            raise error from e
        finally:
            if self._ticking is None:
                self._ticking = self._loop.call_later(_POLL_INTERVAL, self._tick)

    # -- what became of messages; librdkafka may call these from the thread that flushes

    def _report(self, callback: DeliveryCallback, error: Any, message: Any) -> None:
        self._reports.append((callback, error, message))

    def _unwatched(self, error: Any, message: Any) -> None:
        if error is not None:
            self._reports.append((self._note_failure, error, message))

    def _note_failure(self, delivery: Delivery | None, error: ClientError | None) -> None:
        if error is not None:
            self._unwatched_failures += 1
            self._first_unwatched = self._first_unwatched or error

    def _sent(
        self,
        tracing: Tracing,
        span: Any,
        callback: DeliveryCallback,
        delivery: Delivery | None,
        error: ClientError | None,
    ) -> None:
        tracing.sent(span, error, delivery)
        callback(delivery, error)

    async def _next_tick(self) -> None:
        if self._ticked is None:
            self._ticked = self._loop.create_future()
        await asyncio.shield(self._ticked)

    async def _verify_contact(self) -> None:
        """Fail everything in the queue if no broker answers."""
        self._unreachable = await self._contact.verify(self._rk)
        self._verifying = None
        if self._unreachable is not None:
            self._rk.purge()

    def _tick(self) -> None:
        """Poll librdkafka for delivery reports, again as long as messages are in flight."""
        self._rk.poll(0)
        if self._verifying is None and self._contact.is_overdue(self._loop.time()):
            self._verifying = self._loop.create_task(self._verify_contact())
        self._ticking = self._loop.call_later(_POLL_INTERVAL, self._tick) if len(self._rk) else None
        if self._ticked is not None:
            self._ticked.set_result(None)
            self._ticked = None
        self._tell()

    def _tell(self) -> None:
        reports = self._reports
        while reports:
            callback, error, message = reports.popleft()
            if error is not None:
                unreachable = self._unreachable if error.code() in _PURGED else None
                callback(None, unreachable or translated(error))
                continue
            self._contact.made = True
            offset = message.offset()
            callback(
                Delivery(
                    message.topic(),
                    message.partition(),
                    None if offset is None or offset < 0 else offset,
                    message.timestamp()[1],
                ),
                None,
            )


def _settle(result: asyncio.Future[Delivery], delivery: Delivery | None, error: ClientError | None) -> None:
    if result.done():  # the waiting task was cancelled
        return
    if error is not None:
        result.set_exception(error)
    elif delivery is not None:
        result.set_result(delivery)
