"""Consumes messages as a member of a group.

`delivery` decides when a message's offset is committed, and so what a crash does:

- `at_least_once`: after it was processed. After a crash uncommitted messages are delivered again: be
  idempotent.
- `at_most_once`: before it is delivered. A crash loses delivered and buffered messages; none is delivered
  twice.
- `exactly_once`: not supported yet, because this client does not use transactions.

A message counts as processed when the next one is requested, or when the `async with` around it ends without
an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from penstock.client.errors import MisusedClient, translated
from penstock.client.fetching import Fetcher, Offsets, Where, places
from penstock.client.first_contact import FirstContact
from penstock.client.handling import Handler, Handling, RetryPolicy
from penstock.client.lanes import Lanes
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.serializers import BYTES, Decode, Serializer, decoder
from penstock.client.settings import Protocol, consumer_config, security_of
from penstock.client.tracing import Tracing, configured
from penstock.model.ids import TopicPartition

__all__ = ["Consumer", "DeliveryMode", "Style"]

DeliveryMode: TypeAlias = Literal["at_most_once", "at_least_once", "exactly_once"]
Style: TypeAlias = Literal["fifo", "parallel"]


class Consumer:
    """Reads the topics that it subscribes to, sharing them with the other members of its group.

    Use it in `async with`, or call `start` and `close`. One task reads at a time. `reset` is where partitions
    start that the group has no offset for. Reading fails with `NotReachable` if no broker has answered within
    `connect_timeout`; None waits for ever. `protocol` is `consumer`, or `classic` if `session_timeout` or
    `heartbeat_interval` is given: in the newer protocol they are settings of the group. `config` takes what
    has no argument (security, for example) under librdkafka's names.

    Why it has more than 25 methods: it has the calls of Kafka's consumer, which share one librdkafka handle
    and one position per partition.
    """

    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        group: str,
        delivery: DeliveryMode = "at_least_once",
        auto_commit: bool = True,
        commit_interval: float = 5.0,
        reset: Where = "earliest",
        key_serializer: Serializer | Decode = BYTES,
        value_serializer: Serializer | Decode = BYTES,
        protocol: Protocol | None = None,
        max_batch: int = 500,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        fetch_min_bytes: int | None = None,
        fetch_max_wait: float | None = None,
        connect_timeout: float | None = 10.0,
        client_id: str = "penstock",
        instance_id: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        _check(delivery, auto_commit)
        settings = consumer_config(
            bootstrap,
            group=group,
            protocol=protocol,
            reset=reset if isinstance(reset, str) else "earliest",
            auto_commit=auto_commit and delivery == "at_least_once",
            commit_interval=commit_interval,
            session_timeout=session_timeout,
            heartbeat_interval=heartbeat_interval,
            fetch_min_bytes=fetch_min_bytes,
            fetch_max_wait=fetch_max_wait,
            client_id=client_id,
            instance_id=instance_id,
            config=config or {},
        )
        start_at = None if isinstance(reset, str) else reset
        contact = FirstContact(bootstrap, connect_timeout)
        self._fetcher = Fetcher(settings, start_at, self._revoked, self._forget, contact)
        self._bootstrap = bootstrap
        self._security = security_of(settings)
        self._topics = topics
        self._at_most_once = delivery == "at_most_once"
        self._auto_commit = auto_commit
        self._commit_interval = commit_interval
        self._decode_key = decoder(key_serializer)
        self._decode_value = decoder(value_serializer)
        self._max_batch = max_batch
        self._closing = False
        #: the next offsets: of the messages delivered last, and of all processed messages
        self._handed: dict[TopicPartition, int] = {}
        self._processed: dict[TopicPartition, int] = {}
        self._store_due = False
        self._store_at = 0.0
        self._lanes: Lanes | None = None
        self._tracing: Tracing | None = None
        self._span: AbstractContextManager[object] | None = None

    # -- life

    async def start(self) -> None:
        """Start, and subscribe to the topics that the constructor was given."""
        self._tracing = configured()
        self._fetcher.start()
        if self._topics:
            await self._fetcher.subscribe(self._topics)

    async def close(self) -> None:
        """Commit what is processed, leave the group, end every loop that reads. Closing twice is harmless."""
        self._closing = True
        self._end_span()
        await self._fetcher.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._settle()
        else:
            self._end_span(kind, error, trace)
        await self.close()

    async def subscribe(self, *topics: str) -> None:
        """Read these topics instead of those before; one that starts with `^` is a pattern."""
        await self._fetcher.subscribe(topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the group has given to this consumer."""
        return {TopicPartition(p.topic, p.partition) for p in self._fetcher.rk.assignment()}

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._settle()
        message = await self._next()
        self._handed[message.topic_partition] = message.offset + 1
        if self._tracing is not None:
            self._span = self._tracing.processing(message)
            self._span.__enter__()
        return message

    async def poll(self, max_messages: int | None = None, *, wait: float = 1.0) -> list[Message]:
        """The available messages, as soon as there are any; an empty list after `wait` seconds."""
        self._settle()
        deadline = time.monotonic() + wait
        while not self._fetcher.buffer:
            left = deadline - time.monotonic()
            await self._fill(max(left, 0.0))
            if left <= 0:
                break
        await self._claim()
        buffer = self._fetcher.buffer
        count = min(len(buffer), max_messages or self._max_batch)
        messages = [self._message(buffer.popleft()) for _ in range(count)]
        self._handed.update((m.topic_partition, m.offset + 1) for m in messages)
        return messages

    async def _next(self) -> Message:
        """The next message, which is not yet settled; StopAsyncIteration when the consumer is closed."""
        while not self._fetcher.buffer:
            if self._closing:
                raise StopAsyncIteration
            await self._fill(self._commit_interval)
        if self._at_most_once:
            await self._claim()
        if time.monotonic() >= self._store_at:
            self._store()
        return self._message(self._fetcher.buffer.popleft())

    async def _fill(self, wait: float) -> None:
        self._store()
        await self._fetcher.fill(self._max_batch, wait)

    async def _claim(self) -> None:
        """At most once: buffered messages are committed before any of them is delivered."""
        fetcher = self._fetcher
        if self._at_most_once and fetcher.unclaimed:
            await self._commit(
                {TopicPartition(m.topic(), m.partition()): m.offset() + 1 for m in fetcher.buffer}
            )
            fetcher.unclaimed = False

    def _message(self, raw: Any) -> Message:
        return Message(raw, self._decode_key, self._decode_value)

    # -- handling

    async def run(
        self,
        handler: Handler,
        *,
        style: Style = "fifo",
        concurrency: int = 16,
        retry: RetryPolicy | None = None,
        dead_letter: str | None = None,
    ) -> None:
        """Call the handler with each message, until the consumer is closed or the task cancelled.

        `fifo` handles one message at a time, in order. `parallel` handles up to `concurrency` at a time:
        those of one key in order, and those of one partition without a key too. A handler that keeps
        failing ends this with `HandlerFailed`, or its message goes to the topic `dead_letter`.
        """
        if not self._auto_commit:
            raise MisusedClient("run() commits handled messages: leave auto_commit on")
        if style not in ("fifo", "parallel") or concurrency < 1:
            raise MisusedClient("style is 'fifo' or 'parallel', and concurrency at least 1")
        async with AsyncExitStack() as stack:
            letters = None
            if dead_letter is not None:
                producer = Producer(self._bootstrap, config=self._security)
                letters = await stack.enter_async_context(producer), dead_letter
            handling = Handling(handler, retry or RetryPolicy(), letters, self._tracing)
            await (self._run_fifo(handling) if style == "fifo" else self._run_parallel(handling, concurrency))

    async def _run_fifo(self, handling: Handling) -> None:
        while not self._closing:
            self._settle()
            try:
                message = await self._next()
            except StopAsyncIteration:
                return
            try:
                await handling.handle(message)
            except BaseException:
                self._put_back([message])
                raise
            self._handed[message.topic_partition] = message.offset + 1

    async def _run_parallel(self, handling: Handling, concurrency: int) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._lanes = Lanes(handling.handle, concurrency, group)
                await self._feed(self._lanes)
        except ExceptionGroup as failures:
            # The first is the reason: it has cancelled the others.
            raise failures.exceptions[0] from None
        finally:
            if self._lanes is not None:
                self._lanes.abandon()
                self._processed.update(self._lanes.positions())
                self._put_back(self._lanes.unfinished())
                self._lanes = None

    async def _feed(self, lanes: Lanes) -> None:
        while not self._closing:
            await lanes.room()
            try:
                message = await self._next()
            except StopAsyncIteration:
                return
            lanes.add(message)

    def _put_back(self, messages: list[Message]) -> None:
        """Unfinished messages at the end of a run. Later commits of this consumer must not skip them."""
        if not self._at_most_once:
            self._fetcher.put_back(messages)

    # -- positions

    async def commit(self, offsets: Message | Offsets | None = None) -> None:
        """Commit, and wait for the broker's response.

        Without an argument: all delivered messages, including the current one. With a message: up to and
        including it. With offsets: those, each the offset of the next message to read.
        """
        if isinstance(offsets, Message):
            await self._commit({offsets.topic_partition: offsets.offset + 1})
        elif offsets is not None:
            await self._commit(offsets)
        else:
            await self._commit(self._processed | self._handed)

    async def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets of this consumer's partitions."""
        rk = self._fetcher.rk
        found = await self._fetcher.call(lambda: rk.committed(rk.assignment(), timeout=10.0))
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        """Read on elsewhere in a partition: at an offset, an end, or the first message from a moment on."""
        await self._forget({partition})
        await self._fetcher.seek(partition, where)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Hand out nothing of these partitions (of all of them) until `resume`; stay in the group."""
        self._fetcher.pause(self.assignment() if partitions is None else partitions)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._fetcher.resume(self.assignment() if partitions is None else partitions)

    async def _commit(self, offsets: Offsets) -> None:
        if not offsets:
            return
        rk, wanted = self._fetcher.rk, places(offsets)
        for done in await self._fetcher.call(lambda: rk.commit(offsets=wanted, asynchronous=False)):
            if done.error is not None:
                raise translated(done.error)

    def _settle(self) -> None:
        """Delivered messages count as processed: the caller has requested more."""
        if self._handed:
            self._processed.update(self._handed)
            self._handed.clear()
            self._store_due = True
        self._end_span()

    def _store(self) -> None:
        """Store the offsets of processed messages in librdkafka, which commits them in the background."""
        if self._lanes is not None:
            self._processed.update(self._lanes.positions())
            self._store_due = bool(self._processed)
        if self._store_due and self._auto_commit and not self._at_most_once:
            self._fetcher.store(self._processed)
            self._store_due = False
        self._store_at = time.monotonic() + self._commit_interval / 2

    def _end_span(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._span is not None:
            span, self._span = self._span, None
            span.__exit__(kind, error, trace)

    # -- rebalances

    async def _revoked(self, partitions: set[TopicPartition]) -> Offsets:
        """Finish what is being handled of these partitions; the positions that are to be committed."""
        if self._lanes is not None:
            await self._lanes.drain(partitions)
            self._processed.update(self._lanes.positions())
        offsets = {tp: offset for tp, offset in self._processed.items() if tp in partitions}
        await self._forget(partitions)
        return offsets if self._auto_commit and not self._at_most_once else {}

    async def _forget(self, partitions: set[TopicPartition]) -> None:
        for partition in partitions:
            self._processed.pop(partition, None)
            self._handed.pop(partition, None)
        if self._lanes is not None:
            self._lanes.forget(partitions)


def _check(delivery: str, auto_commit: bool) -> None:
    if delivery == "exactly_once":
        raise MisusedClient(
            "exactly_once needs transactions, which this client does not have yet: "
            "use at_least_once with a handler that may see a message twice"
        )
    if delivery not in ("at_most_once", "at_least_once"):
        raise MisusedClient(f"delivery={delivery!r} must be at_most_once, at_least_once or exactly_once")
    if delivery == "at_most_once" and not auto_commit:
        raise MisusedClient("at_most_once commits before delivery: leave auto_commit on")
