"""Sends dead letters back to the topics that their messages came from."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.connection import Cluster
from penstock.cli.failure import Failure
from penstock.cli.interruption import stoppable
from penstock.cli.queue_reading import QueueEnd
from penstock.client import Producer, Queue, QueueMessage
from penstock.model.dead_letters import (
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
)

if TYPE_CHECKING:
    from threading import Event

    from penstock.cli.option_groups import Connection

__all__ = ["Redriven", "redrive_letters"]

_BATCH: Final = 100
#: the time in which the letters of one poll are sent: shorter than the time for which their locks are renewed
_POLL_LASTS_S: Final = 60.0


class Redriven(NamedTuple):
    """How many messages were sent, and how many letters name no message that can be sent."""

    sent: int
    rejected: int


class Content(NamedTuple):
    """What a message has, beside its place."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Origin(NamedTuple):
    """Where the message of a letter came from."""

    topic: str
    partition: int
    offset: int


def redrive_letters(
    connection: Connection, topic: str, to: str | None, rate: float | None, count: int | None, group: str
) -> Redriven:
    """Send letters of `topic` until none is left, `count` are sent, or Ctrl-C."""
    cluster = connection.cluster()
    cluster.metadata(cluster.admin)  # a Failure if no broker answers
    originals = _Originals(cluster)
    with stoppable() as stop:
        try:
            return asyncio.run(_redrive(connection, topic, to, rate, count, group, originals, stop))
        finally:
            originals.close()


async def _redrive(
    connection: Connection,
    topic: str,
    to: str | None,
    rate: float | None,
    count: int | None,
    group: str,
    originals: _Originals,
    stop: Event,
) -> Redriven:
    settings = librdkafka_settings()
    sent = rejected = 0
    pace = _Pace(rate)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(connection.bootstrap, config=settings))
        queue = await stack.enter_async_context(
            Queue(connection.bootstrap, topic, group=group, acknowledgement="explicit", config=settings)
        )
        end = QueueEnd(connection, group)
        while not stop.is_set() and not end.is_reached and (count is None or sent < count):
            # Wait before the poll, too: a letter that waits here for a long time would be delivered again.
            await pace.wait()
            limit = pace.letters_max if count is None else min(pace.letters_max, count - sent)
            for letter in await end.poll(queue, limit):
                await pace.wait()
                if stop.is_set():
                    break
                if not letter.is_held:
                    continue  # delivered again, to this member or to another one
                pace.count()
                if await _send_back(letter, to, producer, originals):
                    sent += 1
                    letter.accept()
                else:
                    rejected += 1
                    letter.reject()
    return Redriven(sent, rejected)


class _Pace:
    """Waits so that no more than `rate` letters per second are sent."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()

    @property
    def letters_max(self) -> int:
        """The most letters of one poll."""
        return _BATCH if self._rate is None else max(1, min(_BATCH, int(self._rate * _POLL_LASTS_S)))

    @property
    def due_in_s(self) -> float:
        """The time until the next letter may be sent."""
        return 0.0 if self._rate is None else max(0.0, self._due - self._loop.time())

    async def wait(self) -> None:
        if self._rate is not None:
            await asyncio.sleep(self.due_in_s)

    def count(self) -> None:
        if self._rate is not None:
            self._due = max(self._due, self._loop.time() - 1.0) + 1 / self._rate


async def _send_back(letter: QueueMessage, to: str | None, producer: Producer, originals: _Originals) -> bool:
    """Returns false if the letter does not say where its message is, or the message is not there any more."""
    origin = origin_of(letter.headers)
    if origin is None:
        return False
    key, value = letter.raw_key, letter.raw_value
    headers = [header for header in letter.headers if not header[0].startswith(DEAD_LETTER_PREFIX)]
    if key is None and value is None and not headers:
        found = await asyncio.to_thread(originals.read, origin)
        if found is None:
            return False
        key, value, headers = found
    await producer.send(to or origin.topic, value, key=key, headers=headers)
    return True


def origin_of(headers: list[tuple[str, bytes | None]]) -> Origin | None:
    """The origin that the headers of a letter name (KIP-1191); None if they do not."""
    found = {name: value for name, value in headers if value is not None}
    try:
        return Origin(
            found[DEAD_LETTER_TOPIC].decode(),
            int(found[DEAD_LETTER_PARTITION]),
            int(found[DEAD_LETTER_OFFSET]),
        )
    except (KeyError, ValueError):
        return None


class _Originals:
    """Reads single messages, for letters without a copy."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Any = None

    def read(self, origin: Origin) -> Content | None:
        """Key, value and headers; None if there is no such message any more.

        Raises a Failure if that is not certain: the caller must not finish the letter then.
        """
        from confluent_kafka import KafkaError, KafkaException

        if self._consumer is None:
            # A reset to the end of the log would skip the message.
            self._consumer = self._cluster.consumer({"fetch.wait.max.ms": 100, "auto.offset.reset": "error"})
        try:
            return self._read(origin)
        except KafkaException as error:
            reason = self._topic_error(origin.topic) or error.args[0]
            if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise _not_read(origin, reason.str()) from error

    def _topic_error(self, topic: str) -> Any:
        """The error of a topic's metadata, None if there is none.

        Why not the list of all topics: it leaves out topics that this user may not describe.
        """
        found = self._cluster.metadata(self._consumer, topic).topics.get(topic)
        return None if found is None else found.error

    def _read(self, origin: Origin) -> Content | None:
        from confluent_kafka import KafkaError, TopicPartition

        place, timeout_s = TopicPartition(*origin), self._cluster.timeout_s
        deadline = time.monotonic() + timeout_s
        start, end = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
        if origin.offset < start:
            return None
        reason = f"timeout of {timeout_s:g} s"
        if origin.offset >= end:
            # `end` is the last stable offset: the transaction before or around the message may end in time.
            if origin.offset >= self._high_watermark(origin):
                return None
            reason = f"committed messages end at offset {end}, where a transaction is open"
        self._consumer.assign([place])
        while (left_s := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                reason = error.str()
            elif error is None and message.offset() == origin.offset:
                return Content(message.key(), message.value(), list(message.headers() or ()))
            elif message.offset() > origin.offset:
                # Compacted, or of an aborted transaction.
                return None
        raise _not_read(origin, reason)

    def _high_watermark(self, origin: Origin) -> int:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place = TopicPartition(origin.topic, origin.partition)
        found = self._cluster.admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )
        end: int = self._cluster.wait(found[place], f"{origin.topic}-{origin.partition}").offset
        return end

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _not_read(origin: Origin, reason: str) -> Failure:
    return Failure(
        f"the message at offset {origin.offset} of {origin.topic}-{origin.partition} could not be read: "
        f"{reason.rstrip('.')}; its letter is kept: run the command again, with a longer --timeout if need be"
    )
