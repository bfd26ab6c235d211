"""The output of collectors: a topic, through librdkafka.

librdkafka batches and retries. Idempotence is always on, so each message is stored once. Only failed messages
cause a callback, because callbacks are expensive: after a flush, all messages without one are acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.model.errors import PenstockError
from penstock.telemetry.message import Message, headers

__all__ = ["MessageRefused", "Outlet", "TopicOutlet"]

_silent = logging.getLogger("penstock.librdkafka")
_POLL_EVERY: Final = 4096


class MessageRefused(PenstockError):
    """The cluster did not take a message."""


class Outlet(Protocol):
    """Takes messages, in order for each key."""

    def send(self, messages: Iterable[Message]) -> None: ...


class TopicOutlet:
    """Sends to one topic; raises `MessageRefused` as soon as a message is known to be lost."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        source: str,
        *,
        compression: str = "lz4",
        timeout_s: float = 30.0,
        watch: Callable[[int], None] = lambda timestamp_ms: None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """`watch` gets the time of the first message of each `send`.

        `security` has TLS and SASL by librdkafka's names.
        """
        self._watch = watch
        self._topic = topic
        self._headers = headers(source)
        self._first_error: KafkaError | None = None
        self._sent = 0
        self._failed = 0
        #: of keys and values, before compression
        self.bytes = 0
        self._producer = Producer(
            {
                **(security or {}),
                "bootstrap.servers": bootstrap,
                "client.id": f"penstock-{source}",
                "enable.idempotence": True,
                # the partitioner of every other Kafka client
                "partitioner": "murmur2_random",
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "compression.type": compression,
                "queue.buffering.max.messages": 200_000,
                "queue.buffering.max.kbytes": 262_144,
                "message.timeout.ms": max(1000, int(timeout_s * 1000)),
                "delivery.report.only.error": True,
                "on_delivery": self._on_failure,
            },
            logger=_silent,
        )

    @property
    def acknowledged(self) -> int:
        """How many messages are stored; exact after `finish`."""
        return self._sent - self._failed - len(self._producer)

    def send(self, messages: Iterable[Message]) -> None:
        """Hand over, and wait where the queue is full."""
        producer, topic, headers = self._producer, self._topic, self._headers
        produce = producer.produce
        is_first = True
        for key, value, timestamp_ms in messages:
            if is_first:
                self._watch(timestamp_ms)
                is_first = False
            while True:
                try:
                    produce(topic, value, key, timestamp=timestamp_ms, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.05)
                    self._raise_refused()
                except KafkaException as error:
                    raise MessageRefused(error.args[0].str()) from error
            self._sent += 1
            self.bytes += len(key) + len(value)
            if self._sent % _POLL_EVERY == 0:
                producer.poll(0)
        producer.poll(0)
        self._raise_refused()

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        while self._producer.flush(0.2):
            self._raise_refused()
        self._raise_refused()

    def _on_failure(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or error

    def _raise_refused(self) -> None:
        if self._first_error is not None:
            raise MessageRefused(f"{self._first_error.str()} (after {self.acknowledged} messages)")
