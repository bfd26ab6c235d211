"""Each client library behind the same two calls: produce to, and read from, one partition.

A call makes its own client and closes it, so every test sees a client's whole life: bootstrap, versions,
metadata, work, close. Nothing here knows what the broker is; errors are the library's own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

from tests.interop.message import Message

__all__ = ["ADAPTERS", "Adapter", "AioKafka", "ConfluentKafka", "KafkaPython", "Kcat"]

WAIT_S: Final = 60.0
#: so long that what is sent together stays together, on a machine that stands still as well, until it is
#: flushed; aiokafka does not get round to sending in between anyway
LINGER_MS: Final = 60_000
NO_SECURITY: Final[Mapping[str, Any]] = {}
#: room for messages larger than clients expect: ten times their defaults
LARGE: Final = 10_000_000


class Adapter(Protocol):
    name: str

    def can_send(self, message: Message) -> bool:
        """Whether the client's API lets this through at all."""
        ...

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", partition: int = 0
    ) -> None:
        """Send all, in order; return when all are acknowledged, or raise the client's own error."""
        ...

    def consume(
        self, bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
    ) -> list[Message]:
        """Read `count` messages from `offset` on."""
        ...


class ConfluentKafka:
    name = "confluent-kafka"

    def __init__(self, security: Mapping[str, Any] = NO_SECURITY) -> None:
        """`security` has TLS and SASL by the names of the library, here and in the other adapters."""
        self._security = security

    def can_send(self, message: Message) -> bool:
        return True

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", partition: int = 0
    ) -> None:
        errors: list[Any] = []
        settings = {"compression.type": codec, "linger.ms": LINGER_MS, "message.max.bytes": LARGE}
        producer = Producer({"bootstrap.servers": bootstrap, **settings, **self._security})
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                partition,
                on_delivery=lambda error, _: errors.append(error),
                timestamp=message.timestamp or 0,
                headers=list(message.headers),
            )
        assert producer.flush(WAIT_S) == 0
        for error in filter(None, errors):
            raise KafkaException(error)
        assert len(errors) == len(messages)

    def consume(
        self, bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
    ) -> list[Message]:
        settings = {"group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
        with closing(Consumer({"bootstrap.servers": bootstrap, **settings, **self._security})) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            read = []
            for message in consumer.consume(count, WAIT_S):
                if message.error():
                    raise KafkaException(message.error())
                headers = tuple(message.headers() or ())
                read.append(Message(message.key(), message.value(), headers, message.timestamp()[1]))
        return read


class KafkaPython:
    name = "kafka-python"

    def __init__(self, security: Mapping[str, Any] = NO_SECURITY) -> None:
        self._security = security

    def can_send(self, message: Message) -> bool:
        nothing = message.key is None and message.value is None
        return not nothing and all(value is not None for _, value in message.headers)

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", partition: int = 0
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=LINGER_MS,
            max_request_size=LARGE,
            **self._security,
        )
        with closing(producer):
            sent = [
                producer.send(
                    topic, m.value, m.key, list(m.headers), partition=partition, timestamp_ms=m.timestamp
                )
                for m in messages
            ]
            producer.flush(WAIT_S)
            for future in sent:
                future.get(WAIT_S)

    def consume(
        self, bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
    ) -> list[Message]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            check_crcs=True,
            **self._security,
        )
        where = KafkaPythonTopicPartition(topic, partition)
        read: list[Message] = []
        with closing(consumer):
            consumer.assign([where])
            consumer.seek(where, offset)
            deadline = time.monotonic() + WAIT_S
            while len(read) < count and time.monotonic() < deadline:
                for r in consumer.poll(1000, max_records=count - len(read)).get(where, ()):
                    read.append(Message(r.key, r.value, tuple(r.headers), r.timestamp))
        return read


class AioKafka:
    name = "aiokafka"

    def __init__(self, security: Mapping[str, Any] = NO_SECURITY) -> None:
        self._security = security

    def can_send(self, message: Message) -> bool:
        return message.key is not None or message.value is not None

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", partition: int = 0
    ) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
                max_request_size=LARGE,
                **self._security,
            )
            async with producer:
                sent = [
                    await producer.send(topic, m.value, m.key, partition, m.timestamp, list(m.headers))
                    for m in messages
                ]
                for future in sent:
                    await future

        asyncio.run(asyncio.wait_for(run(), WAIT_S))

    def consume(
        self, bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
    ) -> list[Message]:
        where = AioTopicPartition(topic, partition)

        async def run() -> list[Message]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                enable_auto_commit=False,
                check_crcs=True,
                **self._security,
            )
            consumer.assign([where])
            async with consumer:
                consumer.seek(where, offset)
                records = [await consumer.getone() for _ in range(count)]
            return [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]

        return asyncio.run(asyncio.wait_for(run(), WAIT_S))


class Kcat:
    """librdkafka of another age, and the tool that people reach for first.

    Its input is lines, and its headers are the same for all of them: consecutive messages that agree in these
    go through one run.
    """

    name = "kcat"

    def __init__(self, security: Mapping[str, Any] = NO_SECURITY) -> None:
        self._security = [text for name, value in security.items() for text in ("-X", f"{name}={value}")]

    def can_send(self, message: Message) -> bool:
        """-Z makes both null that are empty, and a header without a name is not one."""
        mixes_empty_and_null = None in message[:2] and b"" in message[:2]
        return not mixes_empty_and_null and all(name for name, _ in message.headers)

    def produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str = "none", partition: int = 0
    ) -> None:
        for run in _alike(messages):
            # Without -Z an empty key or value is empty, with it both are null.
            flags = ["-Z"] if _has_null(run[0]) else []
            for name, value in run[0].headers:
                flags += ["-H", name if value is None else f"{name}={value.decode()}"]
            if codec != "none":
                flags += ["-z", codec]
            lines = b"\n".join((m.key or b"") + b"\t" + (m.value or b"") for m in run)
            where = ["-t", topic, "-p", str(partition)]
            flags += ["-X", f"message.max.bytes={LARGE}", *self._security]
            _kcat(bootstrap, "-P", *where, "-K", "\t", *flags, stdin=lines)

    def consume(
        self, bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
    ) -> list[Message]:
        where = ["-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count)]
        output = _kcat(bootstrap, "-C", *where, "-J", "-q", *self._security)
        return [_from_json(json.loads(line)) for line in output.splitlines()]


def _kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments], input=stdin, capture_output=True, timeout=WAIT_S
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return done.stdout


def _has_null(message: Message) -> bool:
    return message.key is None or message.value is None


def _alike(messages: Sequence[Message]) -> list[list[Message]]:
    runs: list[list[Message]] = []
    for message in messages:
        kind = (message.headers, _has_null(message))
        if runs and kind == (runs[-1][0].headers, _has_null(runs[-1][0])):
            runs[-1].append(message)
        else:
            runs.append([message])
    return runs


def _from_json(row: dict[str, Any]) -> Message:
    flat: list[str | None] = row.get("headers", [])
    headers = tuple((str(name), _bytes(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))
    return Message(_bytes(row["key"]), _bytes(row["payload"]), headers, row["ts"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


ADAPTERS: Final[tuple[Adapter, ...]] = (ConfluentKafka(), KafkaPython(), AioKafka(), Kcat())
