"""Runs librdkafka's consumer on a thread of its own.

The calls of librdkafka run on the fetcher's thread (call_thread.py); the buffer belongs to the event loop. A
fetch waits for one message, and then takes all other messages in the buffer: single messages are not delayed,
and many are taken at once. A fetch whose caller was cancelled is kept for the next one: nothing that was read
is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException
from confluent_kafka import Consumer as _Librdkafka
from confluent_kafka import TopicPartition as _Place

from penstock.client.call_thread import CallThread
from penstock.client.errors import ClientClosed, MisusedClient, translated
from penstock.client.first_contact import FirstContact
from penstock.client.message import Message, as_milliseconds
from penstock.model.ids import TopicPartition

__all__ = ["Fetcher", "Offsets", "Where", "places"]

#: A position in a partition: an offset, an end, or the first message from a moment on.
Where: TypeAlias = int | Literal["earliest", "latest"] | datetime
Offsets: TypeAlias = Mapping[TopicPartition, int]
T = TypeVar("T")

_log = logging.getLogger("penstock.client")
_REQUEST_TIMEOUT = 10.0
#: How long a fetch may occupy the thread, and delay `close`.
_FETCH_TIMEOUT = 0.1


def places(offsets: Offsets) -> list[Any]:
    return [_Place(topic, partition, offset) for (topic, partition), offset in offsets.items()]


class Fetcher:
    """Reads ahead into `buffer`. `on_revoked` is awaited while partitions are still ours; what it returns is
    committed before they go."""

    def __init__(
        self,
        config: Mapping[str, Any],
        start_at: int | datetime | None,
        on_revoked: Callable[[set[TopicPartition]], Awaitable[Offsets]],
        on_lost: Callable[[set[TopicPartition]], Awaitable[object]],
        contact: FirstContact,
        *,
        with_metadata: bool = False,
    ) -> None:
        """`with_metadata` takes the group's metadata with each fetch, for transactions."""
        self._with_metadata = with_metadata
        self.metadata = b""
        self._config = contact.configure(dict(config))
        self._contact = contact
        self._start_at = start_at
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._rk: Any = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._fetching: asyncio.Future[bytes] | None = None
        #: what the current fetch has got; a rebalance inside it takes messages of revoked partitions out
        self._fetched: list[Any] = []
        #: messages to deliver, and those of paused partitions
        self.buffer: deque[Any] = deque()
        self._held: deque[Any] = deque()
        #: whether the buffer has got messages; the waiter resets it
        self.unclaimed = False
        self._paused: set[TopicPartition] = set()
        #: replaced by the thread in a rebalance, never changed
        self._assignment: frozenset[TopicPartition] = frozenset()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._rk = _Librdkafka(self._config)
        except KafkaException as e:
            raise MisusedClient(f"librdkafka does not accept this configuration: {e.args[0].str()}") from e
        self._contact.begin(self._loop.time())
        self._thread = CallThread("penstock-consumer", self._loop)

    async def close(self) -> None:
        """Leave the group, once; a second caller waits for the same end."""
        if self._rk is None:
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        rk = self._rk
        if self._fetching is not None:
            await asyncio.wait([self._fetching])
        try:
            await self.call(rk.close)
        finally:
            self._rk, self._closed = None, True
            self._thread.shut_down()
            for error in self._thread.errors:
                _log.warning("a call before the end of the consumer failed: %s", error)

    @property
    def rk(self) -> Any:
        self._require_started()
        return self._rk

    def _require_started(self) -> None:
        if self._closed:
            raise ClientClosed("consumer")
        if self._rk is None:
            raise MisusedClient("this consumer has not started: use `async with`, or await start()")

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call outside the event loop, with translated errors."""
        try:
            return await self._thread.call(partial(function, *arguments))
        except KafkaException as e:
            raise translated(e) from e

    async def subscribe(self, topics: Iterable[str]) -> None:
        rk, names = self.rk, list(topics)
        await self.call(
            lambda: rk.subscribe(names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        )

    # -- reading

    async def fill(self, limit: int, wait: float) -> None:
        """Wait for messages, up to `wait` seconds or the longest that a fetch may take.

        `AuthenticationFailed` if no broker accepts the client; `NotReachable` if none has answered since the
        start, and the time for that is over.
        """
        if self._fetching is None:
            fetch = partial(self._fetch, self.rk, limit, min(wait, _FETCH_TIMEOUT))
            self._fetching = asyncio.wrap_future(self._thread.submit(fetch))
        await self._collect()
        if self._contact.is_overdue(self._loop.time()):
            error = await self._contact.verify(self.rk)
            if error is not None:
                raise error

    async def _collect(self) -> None:
        if self._fetching is None:
            return
        fetching = self._fetching
        if not fetching.done():  # and if it is, take it even from a caller in too much of a hurry to wait
            await asyncio.wait([fetching])
        if self._fetching is not fetching:  # another task waited for it, too
            return
        self._fetching = None
        errors = []
        self.metadata = _ours(fetching.result)
        messages, self._fetched = self._fetched, []
        for message in messages:
            error = message.error()
            if error is None:
                held = self._paused and _place_of(message) in self._paused
                (self._held if held else self.buffer).append(message)
                self.unclaimed = True
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # a topic may come later
                errors.append(error)
        if errors:
            raise translated(errors[0])
        if self._thread.errors:
            error = self._thread.errors.popleft()
            raise translated(error) if isinstance(error, KafkaException) else error

    def _fetch(self, rk: Any, limit: int, timeout: float) -> bytes:
        """Fetch messages, on the fetcher's thread; the group's metadata, if wanted."""
        self._fetched.extend(rk.consume(1, timeout))
        if self._fetched and limit > 1:
            self._fetched.extend(rk.consume(limit - 1, 0))  # and maybe serve a rebalance
        return rk.consumer_group_metadata() if self._with_metadata else b""

    async def serve(self, limit: int) -> None:
        """Serve rebalances while the buffer has messages; fetch one more if it has less than `limit`."""
        if len(self.buffer) < limit:
            await self.fill(1, 0.0)
            return
        idle = self.assignment() - self._paused
        self._thread.request(self.rk.pause, [_Place(*p) for p in idle])
        await self.fill(1, 0.0)
        self._thread.request(self.rk.resume, [_Place(*p) for p in idle & self.assignment()])

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put delivered but unprocessed messages back: they are delivered next."""
        self.buffer.extendleft(message.raw for message in reversed(list(messages)))

    # -- positions

    def assignment(self) -> set[TopicPartition]:
        self._require_started()
        return set(self._assignment)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The committed offsets of the group, where it has some."""
        rk, wanted = self.rk, [_Place(*partition) for partition in partitions]
        found = await self.call(lambda: rk.committed(wanted, timeout=_REQUEST_TIMEOUT))
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = set(partitions)
        self._paused |= chosen
        self._thread.request(self.rk.pause, [_Place(*p) for p in chosen])
        self._held.extend(m for m in self.buffer if _place_of(m) in chosen)
        self.buffer = deque(m for m in self.buffer if _place_of(m) not in chosen)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = set(partitions)
        self._paused -= chosen
        # They were read before anything that comes from now on.
        self.buffer.extendleft(reversed([m for m in self._held if _place_of(m) in chosen]))
        self._held = deque(m for m in self._held if _place_of(m) not in chosen)
        self.unclaimed = True
        self._thread.request(self.rk.resume, [_Place(*p) for p in chosen])

    def store(self, offsets: Offsets) -> None:
        """Store the offsets that librdkafka commits next."""
        self._thread.request(self.rk.store_offsets, offsets=places(offsets))

    async def seek(self, partition: TopicPartition, where: Where) -> None:
        await self._collect()
        self._discard({partition})
        await self.call(_seek, self.rk, partition, where)

    def _discard(self, partitions: set[TopicPartition]) -> None:
        self._fetched[:] = [m for m in self._fetched if m.error() or _place_of(m) not in partitions]
        self.buffer = deque(m for m in self.buffer if _place_of(m) not in partitions)
        self._held = deque(m for m in self._held if _place_of(m) not in partitions)

    # -- rebalances: on the fetcher's thread, inside a fetch or a close

    def _assigned(self, rk: Any, partitions: list[Any]) -> None:
        self._contact.made = True
        self._assignment |= _named(partitions)
        if self._start_at is None or not partitions:
            return
        found = rk.committed(partitions, timeout=_REQUEST_TIMEOUT)
        for place in found:
            if place.offset < 0:
                place.offset = _offset(rk, TopicPartition(place.topic, place.partition), self._start_at)
        cooperative = self._config["group.protocol"] == "consumer" or "cooperative" in str(
            self._config.get("partition.assignment.strategy")
        )
        (rk.incremental_assign if cooperative else rk.assign)(found)

    def _revoked(self, rk: Any, partitions: list[Any]) -> None:
        offsets = self._thread.on_loop(self._give_up(partitions, self._on_revoked))
        self._assignment -= _named(partitions)
        if offsets:
            wanted = places(offsets)
            try:
                # librdkafka commits the stored offsets once more, which must not be lower.
                rk.store_offsets(offsets=wanted)
                rk.commit(offsets=wanted, asynchronous=False)
            except KafkaException as e:
                # The group has rebalanced. The new owner of the partitions reads from the last commit.
                _log.warning("commit before a rebalance failed, messages will be delivered again: %s", e)

    def _lost(self, rk: Any, partitions: list[Any]) -> None:
        self._thread.on_loop(self._give_up(partitions, self._on_lost))
        self._assignment -= _named(partitions)

    async def _give_up(
        self, partitions: list[Any], listener: Callable[[set[TopicPartition]], Awaitable[T]]
    ) -> T:
        gone = set(_named(partitions))
        self._discard(gone)
        self._paused -= gone
        return await listener(gone)


def _ours(function: Callable[..., T], *arguments: Any) -> T:
    """Run a call that does not block, with translated errors."""
    try:
        return function(*arguments)
    except KafkaException as e:
        raise translated(e) from e


def _named(partitions: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(p.topic, p.partition) for p in partitions)


def _place_of(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def _offset(rk: Any, partition: TopicPartition, where: Where) -> int:
    """A position as librdkafka takes it."""
    if where == "earliest":
        return int(OFFSET_BEGINNING)
    if where == "latest":
        return int(OFFSET_END)
    if isinstance(where, datetime):
        (found,) = rk.offsets_for_times(
            [_Place(*partition, as_milliseconds(where))], timeout=_REQUEST_TIMEOUT
        )
        return int(OFFSET_END if found.offset < 0 else found.offset)
    return where


def _seek(rk: Any, partition: TopicPartition, where: Where) -> None:
    if not any((p.topic, p.partition) == partition for p in rk.assignment()):
        raise MisusedClient(
            f"{partition} is not assigned to this consumer: seek only in partitions of assignment()"
        )
    rk.seek(_Place(*partition, _offset(rk, partition, where)))
