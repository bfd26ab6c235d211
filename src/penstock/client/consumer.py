"""Consumes messages as a member of a group.

`delivery` decides when a message's offset is committed, and so what a crash does:

- `at_least_once`: after it was processed. After a crash uncommitted messages are delivered again: be
  idempotent.
- `at_most_once`: before it is delivered. A crash loses delivered and buffered messages; none is delivered
  twice.
- `exactly_once`: in a transaction, with the output of processing it. `run` makes the transactions; with
  `poll` use `Producer.transaction(consumer)`. After a crash the transaction is aborted, and its messages are
  delivered again.

A message counts as processed when the next one is requested, or when the `async with` around it ends without
an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, cast

from penstock.client.errors import MisusedClient, translated
from penstock.client.exactly_once import Job, TransactionalHandler
from penstock.client.exactly_once_runs import ExactlyOnceRuns, ExactlyOnceSettings
from penstock.client.fetching import Fetcher, Offsets, Where, places
from penstock.client.first_contact import FirstContact
from penstock.client.handling import IN_HANDLER, Handler, Handling, sender_to
from penstock.client.idempotent_keys import IdempotentKey, check_idempotent_keys
from penstock.client.message import Message
from penstock.client.positions import Positions
from penstock.client.producer import Producer
from penstock.client.retrying import RetryPolicy
from penstock.client.runs import Source, run
from penstock.client.serializers import BYTES, Decode, Serializer, decoder
from penstock.client.settings import DeliveryMode, Protocol, check_delivery, consumer_config, security_of
from penstock.client.stopping import Stop
from penstock.client.tracing import CurrentSpan, Tracing, configured
from penstock.client.transactional_reader import TransactionalReader
from penstock.client.transactions import GroupOffsets
from penstock.model.ids import TopicPartition

__all__ = ["Consumer", "DeliveryMode", "Style"]

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
        transactional_id: str | None = None,
        transaction_timeout: float = 30.0,
        idempotent_key: IdempotentKey | None = None,
        idempotent_window: float = 86_400.0,
        idempotent_max_keys: int = 100_000,
        client_id: str = "penstock",
        instance_id: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        # Longer than other functions because it has one parameter per setting.
        check_delivery(delivery, auto_commit, commit_interval, transaction_timeout)
        check_idempotent_keys(delivery, idempotent_key, idempotent_window, idempotent_max_keys)
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
        once = delivery == "exactly_once"
        self._stop = Stop()
        self._fetcher = Fetcher(settings, start_at, self._revoked, self._lost, contact, with_metadata=once)
        self._exactly_once: ExactlyOnceRuns | None = None
        if once:
            self._exactly_once = ExactlyOnceRuns(
                ExactlyOnceSettings(
                    bootstrap=bootstrap,
                    security=security_of(settings),
                    group=group,
                    transactional_id=transactional_id or (f"{group}-{instance_id}" if instance_id else None),
                    timeout_s=transaction_timeout,
                    commit_interval_s=commit_interval,
                    idempotent_key=idempotent_key,
                    window_s=idempotent_window,
                    max_keys=idempotent_max_keys,
                    connect_timeout_s=connect_timeout,
                ),
                TransactionalReader(self._fetcher, self._message, max_batch, self._stop),
            )
        self._bootstrap = bootstrap
        self._security = security_of(settings)
        self._topics = topics
        self._group = group
        self._at_most_once = delivery == "at_most_once"
        self._auto_commit = auto_commit
        self._commit_interval = commit_interval
        self._decode_key = decoder(key_serializer)
        self._decode_value = decoder(value_serializer)
        self._max_batch = max_batch
        self._positions = Positions()
        self._store_at = 0.0
        self._is_running = False
        self._tracing: Tracing | None = None
        self._span = CurrentSpan()

    # -- life

    async def start(self) -> None:
        """Start, and subscribe to the topics that the constructor was given."""
        self._tracing = configured()
        self._fetcher.start()
        if self._topics:
            await self._fetcher.subscribe(self._topics)

    async def close(self, *, wait: float = 30.0) -> None:
        """Commit what is processed, leave the group, end every loop that reads. Closing twice is harmless.

        A run first commits its open transaction, or abandons it if it has no outcome after `wait` s. If a
        handler of the run closes the consumer, this returns at once, and the run ends with the close.
        """
        self._stop.set(wait)
        self._span.end()
        if IN_HANDLER.get() and self._is_running:
            return
        if self._exactly_once is not None:
            await self._exactly_once.idle()
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
            self._span.end(kind, error, trace)
        await self.close()

    async def subscribe(self, *topics: str) -> None:
        """Read these topics instead of those before; one that starts with `^` is a pattern."""
        await self._fetcher.subscribe(topics)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the group has given to this consumer."""
        return self._fetcher.assignment()

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._settle()
        message = await self._next()
        self._positions.handed[message.topic_partition] = message.offset + 1
        if self._exactly_once is not None:
            self._exactly_once.reader.delivered([message])
        self._span.begin(self._tracing, message)
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
        self._positions.handed.update((m.topic_partition, m.offset + 1) for m in messages)
        if self._exactly_once is not None:
            self._exactly_once.reader.delivered(messages)
        return messages

    async def _next(self) -> Message:
        """The next message, which is not yet settled; StopAsyncIteration when the consumer is closed."""
        while not self._fetcher.buffer:
            if self._stop.is_set():
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
            ends = {TopicPartition(m.topic(), m.partition()): m.offset() + 1 for m in fetcher.buffer}
            await self._commit(ends)
            fetcher.unclaimed = False

    def _message(self, raw: Any) -> Message:
        return Message(raw, self._decode_key, self._decode_value)

    # -- handling

    async def run(
        self,
        handler: Handler | TransactionalHandler,
        *,
        style: Style = "fifo",
        concurrency: int = 16,
        retry: RetryPolicy | None = None,
        dead_letter: str | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Call the handler with each message, until the consumer is closed or the task cancelled.

        `fifo` handles one message at a time, in order. `parallel` handles up to `concurrency` at a time:
        those of one key in order, and those of one partition without a key too. A handler that keeps
        failing ends this with `HandlerFailed`, or its message goes to the topic `dead_letter`.

        With `delivery="exactly_once"` the handler is called with the message and a `Transaction`. Messages
        sent there are committed together with the offset of the message. `producer` is the transactional
        producer to use; without one the run makes its own.
        """
        if not self._auto_commit:
            raise MisusedClient("run() commits handled messages: leave auto_commit on")
        if style not in ("fifo", "parallel") or concurrency < 1:
            raise MisusedClient("style is 'fifo' or 'parallel', and concurrency at least 1")
        if producer is not None and self._exactly_once is None:
            raise MisusedClient("run() uses a producer with delivery='exactly_once' only")
        retry = retry or RetryPolicy()
        at_a_time = None if style == "fifo" else concurrency
        self._is_running = True
        try:
            if self._exactly_once is not None:
                job = Job(
                    handler=cast(TransactionalHandler, handler),
                    concurrency=at_a_time,
                    retry=retry,
                    dead_letter=dead_letter,
                    group=self._group,
                    tracing=self._tracing,
                )
                await self._exactly_once.run(job, producer)
            else:
                await self._run(cast(Handler, handler), at_a_time, retry, dead_letter)
        finally:
            self._is_running = False
        if self._stop.is_set():  # perhaps by the handler
            await self.close()

    async def _run(
        self, handler: Handler, at_a_time: int | None, retry: RetryPolicy, dead_letter: str | None
    ) -> None:
        async with sender_to(dead_letter, self._bootstrap, self._security) as letters:
            handling = Handling(handler, retry, letters, self._tracing, self._group)
            source = Source(self._next, self._settle, self._put_back, self._stop.is_set, self._positions)
            await run(source, handling, at_a_time)

    def _put_back(self, messages: list[Message]) -> None:
        """Unfinished messages at the end of a run. Later commits of this consumer must not skip them."""
        if not self._at_most_once:
            self._fetcher.put_back(messages)

    @property
    def _commits_processed(self) -> bool:
        return self._auto_commit and not self._at_most_once and self._exactly_once is None

    # -- positions

    async def commit(self, offsets: Message | Offsets | None = None) -> None:
        """Commit, and wait for the broker's response.

        Without an argument: all delivered messages, including the current one. With a message: up to and
        including it. With offsets: those, each the offset of the next message to read.
        """
        if self._exactly_once is not None:
            raise MisusedClient("exactly_once commits in transactions: use producer.transaction(consumer)")
        if isinstance(offsets, Message):
            await self._commit({offsets.topic_partition: offsets.offset + 1})
        elif offsets is not None:
            await self._commit(offsets)
        else:
            await self._commit(self._positions.all())

    async def committed(self) -> dict[TopicPartition, int]:
        """The committed offsets of this consumer's partitions."""
        return dict(await self._fetcher.committed(self._fetcher.assignment()))

    def transaction_offsets(self) -> GroupOffsets:
        """For `Producer.transaction`: the offsets of all delivered messages."""
        return self._transactional().transaction_offsets()

    async def transaction_ended(self, committed: bool) -> None:
        """For `Producer.transaction`: deliver the messages of an aborted transaction again."""
        await self._transactional().transaction_ended(committed)

    def _transactional(self) -> TransactionalReader:
        if self._exactly_once is None:
            raise MisusedClient("offsets in transactions need a consumer with delivery='exactly_once'")
        return self._exactly_once.reader

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
        self._positions.settle()
        self._span.end()

    def _store(self) -> None:
        """Store the offsets of processed messages in librdkafka, which commits them in the background."""
        if self._commits_processed:
            due = self._positions.take_due()
            if due is not None:
                self._fetcher.store(due)
        self._store_at = time.monotonic() + self._commit_interval / 2

    # -- rebalances

    async def _revoked(self, partitions: set[TopicPartition]) -> Offsets:
        """Finish what is being handled of these partitions; the positions that are to be committed."""
        offsets = await self._positions.finish(partitions)
        await self._lost(partitions)
        return offsets if self._commits_processed else {}

    async def _lost(self, partitions: set[TopicPartition]) -> None:
        if self._exactly_once is not None:
            self._exactly_once.revoked(partitions)
        await self._forget(partitions)

    async def _forget(self, partitions: set[TopicPartition]) -> None:
        self._positions.forget(partitions)
        if self._exactly_once is not None:
            self._exactly_once.reader.forget(partitions)
