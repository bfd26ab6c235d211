"""Sends dead letters back to the topics that their messages came from."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.connection import Cluster
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


class Redriven(NamedTuple):
    """How many messages were sent, and how many letters name no message that can be sent."""

    sent: int
    rejected: int


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
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(connection.bootstrap, config=settings))
        queue = await stack.enter_async_context(
            Queue(connection.bootstrap, topic, group=group, acknowledgement="explicit", config=settings)
        )
        due, end = loop.time(), QueueEnd(connection, group)
        while not stop.is_set() and not end.is_reached and (count is None or sent < count):
            letters = await end.poll(queue, _BATCH if count is None else min(_BATCH, count - sent))
            for letter in letters:
                if stop.is_set():
                    break
                if rate is not None:
                    await asyncio.sleep(max(0.0, due - loop.time()))
                    due = max(due, loop.time() - 1.0) + 1 / rate
                if await _send_back(letter, to, producer, originals):
                    sent += 1
                    letter.accept()
                else:
                    rejected += 1
                    letter.reject()
    return Redriven(sent, rejected)


async def _send_back(letter: QueueMessage, to: str | None, producer: Producer, originals: _Originals) -> bool:
    """Returns false if the letter does not say where its message is, or the message is not there any more."""
    origin = origin_of(letter.headers)
    if origin is None:
        return False
    key, value = letter.raw_key, letter.raw_value
    headers = [
        (name, content)
        for name, content in letter.headers
        if content is not None and not name.startswith(DEAD_LETTER_PREFIX)
    ]
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

    def read(self, origin: Origin) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes]]] | None:
        """Key, value and headers; None if there is no such message any more."""
        from confluent_kafka import TopicPartition

        if self._consumer is None:
            self._consumer = self._cluster.consumer({"fetch.wait.max.ms": 100})
        place = TopicPartition(*origin)
        start, end = self._consumer.get_watermark_offsets(place, timeout=self._cluster.timeout_s)
        if not start <= origin.offset < end:
            return None
        self._consumer.assign([place])
        message = self._consumer.poll(self._cluster.timeout_s)
        if message is None or message.error() is not None or message.offset() != origin.offset:
            return None
        headers = [(name, value) for name, value in message.headers() or () if value is not None]
        return message.key(), message.value(), headers

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
