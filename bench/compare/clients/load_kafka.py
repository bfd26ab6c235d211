"""Load through confluent-kafka, the client that Confluent and Apache Kafka's pages recommend for Python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.compare.clients.protocol import BATCH, LoadClient, serve

_CALL_S = 30.0
_POLL_S = 0.2
_GIVE_UP = 30
"""Polls of a full queue without progress before a sender gives up: the server is gone."""
_ACCEPT = 1
_COMMON = {"log_level": 2}
_PRODUCER = {
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
}
_CONSUMER = {
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 10_485_760,
    "fetch.wait.max.ms": 100,
    # The library stops fetching when so much waits for the application, by default for a second.
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 10,
}


class KafkaLoad(LoadClient):
    """A topic with one partition. A worker is a member of a share group."""

    is_blocking = True

    async def open(self) -> None:
        self._failures: list[KafkaError] = []
        self._at_once = self._producer({"linger.ms": 0})

    async def close(self) -> None:
        self._at_once.flush(1.0)

    def _producer(self, settings: dict[str, Any]) -> Producer:
        return Producer({"bootstrap.servers": self.address, **_COMMON, **_PRODUCER, **settings})

    async def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, **_COMMON})
        wanted = NewTopic(self.target, 1, self.replicas)
        admin.create_topics([wanted], operation_timeout=_CALL_S)[self.target].result(_CALL_S)
        key, set_it = "share.auto.offset.reset", AlterConfigOpType.SET
        earliest = ConfigEntry(key, "earliest", incremental_operation=set_it)
        group = ConfigResource(ResourceType.GROUP, self.target, incremental_configs=[earliest])
        for done in admin.incremental_alter_configs([group]).values():
            done.result(_CALL_S)

    async def remove(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, **_COMMON})
        admin.delete_topics([self.target], operation_timeout=_CALL_S)[self.target].result(_CALL_S)

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        tracked = {"delivery.report.only.error": False, "queue.buffering.max.messages": 20_000}
        producer = self._producer(tracked if acked else {})
        failed, target = self._failures, self.target

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            elif acked is not None:
                acked(message.value())

        for number, payload in enumerate(payloads):
            full = 0
            while True:
                try:
                    producer.produce(target, payload, on_delivery=report)
                    break
                except BufferError:
                    full += not producer.poll(0.1)
                    if full > _GIVE_UP:
                        return
            if number & 127 == 0:
                producer.poll(0)
        left = producer.flush(1.0 if acked else _CALL_S)
        if not acked and (left or failed):
            raise RuntimeError(f"{left + len(failed)} messages were not acknowledged: {failed[:1]}")

    async def send_one(self, payload: bytes) -> None:
        self._at_once.produce(self.target, payload, on_delivery=self._note)
        if self._at_once.flush(_CALL_S) or self._failures:
            raise RuntimeError(f"a message was not acknowledged: {self._failures[:1]}")

    async def send_soon(self, payload: bytes) -> None:
        self._at_once.produce(self.target, payload, on_delivery=self._note)
        self._at_once.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def _consumer(self) -> Consumer:
        settings = {"bootstrap.servers": self.address, "group.id": f"{self.target}-reader"}
        consumer = Consumer({**settings, **_COMMON, **_CONSUMER})
        _end(consumer, TopicPartition(self.target, 0))
        return consumer

    async def read(self) -> AsyncIterator[list[bytes]]:
        consumer = self._consumer()
        try:
            yield []
            consumer.assign([TopicPartition(self.target, 0, 0)])
            while True:
                # `consume` alone would wait for a whole batch.
                first = consumer.poll(_POLL_S)
                messages = [] if first is None else [first, *consumer.consume(BATCH - 1, 0)]
                yield [_value(message) for message in messages]
                await asyncio.sleep(0)
        finally:
            consumer.close()

    async def read_one(self) -> AsyncIterator[list[bytes]]:
        consumer = self._consumer()
        try:
            yield []
            consumer.assign([TopicPartition(self.target, 0, 0)])
            while True:
                message = consumer.poll(_POLL_S)
                if message is None:
                    yield []
                    continue
                value = _value(message)
                consumer.commit(message, asynchronous=False)
                yield [value]
        finally:
            consumer.close()

    async def work(self) -> AsyncIterator[list[bytes]]:
        settings = {"group.id": self.target, "share.acknowledgement.mode": "explicit"}
        consumer = ShareConsumer({"bootstrap.servers": self.address, **_COMMON, **settings})
        consumer.subscribe([self.target])
        try:
            # The first batch shows that the member has joined the group. It does not count.
            deadline = time.monotonic() + _CALL_S
            while not _worked(consumer) and time.monotonic() < deadline:
                pass
            yield []
            while True:
                yield _worked(consumer)
        finally:
            consumer.close()


def _worked(consumer: ShareConsumer) -> list[bytes]:
    """One batch of messages, acknowledged."""
    messages = [message for message in consumer.poll(_POLL_S) if message.error() is None]
    for message in messages:
        consumer.acknowledge(message, _ACCEPT)
    if messages:
        for error in consumer.commit_sync(_CALL_S).values():
            if error is not None:
                raise error
    return [message.value() for message in messages]


def _value(message: Message) -> bytes:
    if message.error() is not None:
        raise KafkaException(message.error())
    return bytes(message.value())


def _end(consumer: Consumer, partition: TopicPartition) -> None:
    """Return when the partition has a leader: a server that was just started may need a moment."""
    deadline = time.monotonic() + _CALL_S
    while True:
        try:
            consumer.get_watermark_offsets(partition, timeout=2.0)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    serve(KafkaLoad)
