"""Large messages: up to what a topic allows, and the client's own error beyond."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from aiokafka import errors as aio_errors
from confluent_kafka import KafkaError, KafkaException
from kafka import errors as kafka_python_errors

from penstock import Producer
from penstock.model.config.units import Unit, plain
from tests.interop.adapters import ADAPTERS, AioKafka, ConfluentKafka, KafkaPython, Kcat
from tests.interop.conftest import NewTopicNamed
from tests.interop.kcat import JSON, needs_kcat
from tests.interop.message import CODECS, Message

MEGABYTE = 1 << 20


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller and that survive kcat's lines: hexadecimal digits."""
    return os.urandom((size + 1) // 2).hex().encode()[:size]


@pytest.mark.parametrize("codec", CODECS)
def test_a_megabyte_goes_round(bootstrap: str, new_topic: NewTopicNamed, codec: str) -> None:
    topic = new_topic(max_message_bytes=str(2 * MEGABYTE))
    sent = []
    for producer in ADAPTERS[:3]:
        message = Message(producer.name.encode(), noise(MEGABYTE))
        producer.produce(bootstrap, topic, [message], codec)
        sent.append(message)
    for consumer in ADAPTERS[:3]:
        read = consumer.consume(bootstrap, topic, len(sent))
        assert [m.without_timestamp() for m in read] == sent


def test_a_value_of_exactly_the_largest_message_passes(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """What `max_message_size: "1MB"` of a config file allows, from clients whose own limit allows it."""
    topic = new_topic(max_message_bytes=plain("1MB", Unit.MESSAGE_SIZE))
    values = []
    for codec in CODECS:
        for client in (ConfluentKafka(), KafkaPython()):
            values.append(noise(MEGABYTE))
            client.produce(bootstrap, topic, [Message(b"key", values[-1])], codec)
    values.append(noise(MEGABYTE))

    async def ours() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(topic, values[-1], key=b"key", headers={"header": "x" * 100})

    asyncio.run(ours())
    assert [m.value for m in ConfluentKafka().consume(bootstrap, topic, len(values))] == values


@needs_kcat(JSON)
def test_a_megabyte_through_kcat(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(max_message_bytes=str(2 * MEGABYTE))
    message = Message(b"kcat", noise(MEGABYTE))
    Kcat().produce(bootstrap, topic, [message])
    assert [m.without_timestamp() for m in Kcat().consume(bootstrap, topic, 1)] == [message]


#: bytes around one value with a one-byte key in a batch of its own: the batch's header, then the record's
BATCH_HEADER = 61
RECORD_OVERHEAD = 4 + 1 + 1 + 1 + 1 + 1 + 4 + 1


def test_a_batch_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    bootstrap: str, new_topic: NewTopicNamed
) -> None:
    limit = 3 * MEGABYTE
    topic = new_topic(max_message_bytes=str(limit))
    fits = limit - BATCH_HEADER - RECORD_OVERHEAD
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", noise(fits))])
    with pytest.raises(KafkaException) as refused:
        ConfluentKafka().produce(bootstrap, topic, [Message(b"k", noise(fits + 1))])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    (read,) = ConfluentKafka().consume(bootstrap, topic, 1)
    assert read.value is not None
    assert len(read.value) == fits


def _confluent(bootstrap: str, topic: str, message: Message) -> None:
    with pytest.raises(KafkaException) as refused:
        ConfluentKafka().produce(bootstrap, topic, [message])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def _kafka_python(bootstrap: str, topic: str, message: Message) -> None:
    with pytest.raises(kafka_python_errors.MessageSizeTooLargeError):
        KafkaPython().produce(bootstrap, topic, [message])


def _aiokafka(bootstrap: str, topic: str, message: Message) -> None:
    with pytest.raises(aio_errors.MessageSizeTooLargeError):
        AioKafka().produce(bootstrap, topic, [message])


def _kcat(bootstrap: str, topic: str, message: Message) -> None:
    with pytest.raises(RuntimeError, match="Message size too large"):
        Kcat().produce(bootstrap, topic, [message])


@pytest.mark.parametrize("codec", ["default", "recompressed"])
@pytest.mark.parametrize(
    "refused", [_confluent, _kafka_python, _aiokafka, pytest.param(_kcat, marks=needs_kcat())]
)
def test_too_large_is_the_clients_own_error(
    bootstrap: str, new_topic: NewTopicNamed, refused: Callable[[str, str, Message], None], codec: str
) -> None:
    topic = new_topic() if codec == "default" else new_topic(compression_type="zstd")
    refused(bootstrap, topic, Message(b"k", noise(MEGABYTE + 100)))
    # The topic goes on working.
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"small")])
    assert ConfluentKafka().consume(bootstrap, topic, 1)[0].value == b"small"


def test_a_reader_with_a_small_fetch_size_gets_past_a_large_message(
    bootstrap: str, new_topic: NewTopicNamed
) -> None:
    """KIP-74: at least one batch is returned, however small the limits are."""
    topic = new_topic(max_message_bytes=str(4 * MEGABYTE))
    sent = [Message(b"a", b"small"), Message(b"b", noise(3 * MEGABYTE)), Message(b"c", b"small")]
    for message in sent:
        ConfluentKafka().produce(bootstrap, topic, [message])
    read = asyncio.run(_read_in_small_fetches(bootstrap, topic, len(sent)))
    assert read == [m.value for m in sent]


async def _read_in_small_fetches(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=1000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        return [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(count)]
