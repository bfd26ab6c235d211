"""Where reading starts: offsets, timestamps, both ends; and the ends of a log that clients get."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.admin import OffsetSpec as KafkaPythonOffsetSpec

from tests.interop.adapters import ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.kcat import needs_kcat
from tests.interop.message import Message

START = 1_700_000_000_000
#: timestamps of the ten messages in `topic`: a second apart, and the newest is not the last
TIMES = [START + 1000 * i for i in (0, 1, 2, 3, 4, 5, 6, 9, 8, 7)]
#: (timestamp, the first offset that has it or a later one)
FIRST_SINCE = [(0, 0), (TIMES[0], 0), (TIMES[0] + 1, 1), (TIMES[4], 4), (TIMES[6] + 1, 7), (TIMES[7], 7)]
#: librdkafka's way to say "n before the end": this minus n
TAIL = -2000
AFTER_ALL = TIMES[7] + 1
T = TypeVar("T")


@pytest.fixture(scope="module")
def topic(bootstrap: str, new_topic: NewTopicNamed) -> str:
    name = new_topic()
    messages = [Message(b"k", b"%d" % i, timestamp=time) for i, time in enumerate(TIMES)]
    for half in messages[:5], messages[5:]:
        ConfluentKafka().produce(bootstrap, name, half)
    return name


# -- confluent-kafka


@contextmanager
def confluent_consumer(bootstrap: str, **settings: Any) -> Iterator[Any]:
    common: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
    }
    # A seek waits for the fetch that is under way.
    common["fetch.wait.max.ms"] = 20
    with closing(Consumer({**common, **{k.replace("_", "."): v for k, v in settings.items()}})) as consumer:
        yield consumer


def next_value(consumer: Any) -> int:
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None, message.error()
    return int(message.value())


def test_confluent_seeks(bootstrap: str, topic: str) -> None:
    with confluent_consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert next_value(consumer) == 0
        for offset in (7, 2, 9, 0):
            consumer.seek(TopicPartition(topic, 0, offset))
            assert next_value(consumer) == offset
            assert consumer.position([TopicPartition(topic, 0)])[0].offset == offset + 1
        consumer.assign([TopicPartition(topic, 0, TAIL - 3)])
        assert next_value(consumer) == 7


def test_confluent_watermarks(bootstrap: str, topic: str, new_topic: NewTopicNamed) -> None:
    with confluent_consumer(bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 10)
        assert consumer.get_watermark_offsets(TopicPartition(new_topic(), 0), timeout=60) == (0, 0)


def test_confluent_offsets_for_times(bootstrap: str, topic: str, new_topic: NewTopicNamed) -> None:
    with confluent_consumer(bootstrap) as consumer:

        def first_since(name: str, timestamp: int) -> int:
            (found,) = consumer.offsets_for_times([TopicPartition(name, 0, timestamp)], timeout=60)
            assert found.error is None
            offset: int = found.offset
            return offset

        assert [(t, first_since(topic, t)) for t, _ in FIRST_SINCE] == FIRST_SINCE
        assert first_since(topic, AFTER_ALL) == OFFSET_END
        assert first_since(new_topic(), 0) == OFFSET_END


def test_confluent_lists_offsets(bootstrap: str, topic: str, new_topic: NewTopicNamed) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def listed(name: str, spec: OffsetSpec) -> tuple[int, int]:
        (future,) = admin.list_offsets({TopicPartition(name, 0): spec}, request_timeout=60).values()
        result = future.result()
        return result.offset, result.timestamp

    assert listed(topic, OffsetSpec.earliest())[0] == 0
    assert listed(topic, OffsetSpec.latest())[0] == 10
    assert listed(topic, OffsetSpec.max_timestamp()) == (7, TIMES[7])
    assert listed(topic, OffsetSpec.for_timestamp(TIMES[3] - 1)) == (3, TIMES[3])
    assert listed(topic, OffsetSpec.for_timestamp(AFTER_ALL)) == (-1, -1)
    empty = new_topic()
    assert listed(empty, OffsetSpec.earliest())[0] == 0
    assert listed(empty, OffsetSpec.latest())[0] == 0
    assert listed(empty, OffsetSpec.max_timestamp()) == (-1, -1)


@pytest.mark.parametrize("offset", [11, 1 << 40])
def test_confluent_offsets_out_of_range(bootstrap: str, topic: str, offset: int) -> None:
    with confluent_consumer(bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(60)
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str()
    with confluent_consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        assert next_value(consumer) == 0


def test_confluent_sees_the_end(bootstrap: str, topic: str) -> None:
    with confluent_consumer(bootstrap, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        message = consumer.poll(60)
        assert message.error().code() == KafkaError._PARTITION_EOF
        assert message.offset() == 10


# -- kafka-python


@contextmanager
def kafka_python_consumer(bootstrap: str, topic: str) -> Iterator[tuple[Any, Any]]:
    where = KafkaPythonTopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)) as consumer:
        consumer.assign([where])
        yield consumer, where


def test_kafka_python_seeks(bootstrap: str, topic: str) -> None:
    with kafka_python_consumer(bootstrap, topic) as (consumer, where):
        for offset in (7, 2, 9, 0):
            consumer.seek(where, offset)
            (record, *_) = consumer.poll(60_000, max_records=1)[where]
            assert (record.offset, int(record.value)) == (offset, offset)
            assert consumer.position(where) == offset + 1
        consumer.seek_to_beginning(where)
        assert consumer.position(where) == 0
        consumer.seek_to_end(where)
        assert consumer.position(where) == 10


def test_kafka_python_offsets(bootstrap: str, topic: str) -> None:
    with kafka_python_consumer(bootstrap, topic) as (consumer, where):
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: 10}
        found = [(t, consumer.offsets_for_times({where: t})[where].offset) for t, _ in FIRST_SINCE]
        assert found == FIRST_SINCE
        assert consumer.offsets_for_times({where: AFTER_ALL}) == {where: None}


def test_kafka_python_lists_offsets(bootstrap: str, topic: str, new_topic: NewTopicNamed) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:

        def listed(name: str, spec: KafkaPythonOffsetSpec | int) -> tuple[int, int]:
            where = KafkaPythonTopicPartition(name, 0)
            found = admin.list_partition_offsets({where: spec})[where]
            return found.offset, found.timestamp

        assert listed(topic, KafkaPythonOffsetSpec.EARLIEST)[0] == 0
        assert listed(topic, KafkaPythonOffsetSpec.LATEST)[0] == 10
        assert listed(topic, KafkaPythonOffsetSpec.MAX_TIMESTAMP) == (7, TIMES[7])
        assert listed(topic, KafkaPythonOffsetSpec.EARLIEST_LOCAL)[0] == 0
        assert listed(topic, TIMES[2]) == (2, TIMES[2])
        assert listed(new_topic(), KafkaPythonOffsetSpec.LATEST)[0] == 0


# -- aiokafka


def with_aiokafka(bootstrap: str, topic: str, work: Callable[[Any, Any], Awaitable[T]]) -> T:
    where = AioTopicPartition(topic, 0)

    async def run() -> T:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False
        )
        consumer.assign([where])
        async with consumer:
            return await work(consumer, where)

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_aiokafka_seeks(bootstrap: str, topic: str) -> None:
    async def seek(consumer: Any, where: Any) -> None:
        for offset in (7, 2, 9, 0):
            consumer.seek(where, offset)
            record = await consumer.getone(where)
            assert (record.offset, int(record.value)) == (offset, offset)
            assert await consumer.position(where) == offset + 1
        await consumer.seek_to_beginning(where)
        assert (await consumer.getone(where)).offset == 0
        await consumer.seek_to_end(where)
        assert await consumer.position(where) == 10

    with_aiokafka(bootstrap, topic, seek)


def test_aiokafka_offsets(bootstrap: str, topic: str) -> None:
    async def call(consumer: Any, where: Any) -> None:
        assert await consumer.beginning_offsets([where]) == {where: 0}
        assert await consumer.end_offsets([where]) == {where: 10}
        found = [(t, (await consumer.offsets_for_times({where: t}))[where].offset) for t, _ in FIRST_SINCE]
        assert found == FIRST_SINCE
        assert await consumer.offsets_for_times({where: AFTER_ALL}) == {where: None}

    with_aiokafka(bootstrap, topic, call)


# -- kcat


def kcat(bootstrap: str, *arguments: str) -> list[str]:
    fast_end = ["-X", "fetch.wait.max.ms=10"]
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *fast_end, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.process
@needs_kcat()
@pytest.mark.parametrize(
    ("start", "first"),
    [("beginning", 0), ("4", 4), ("-3", 7), (f"s@{TIMES[4]}", 4), (f"s@{TIMES[6] + 1}", 7), ("end", 10)],
)
def test_kcat_starts(bootstrap: str, topic: str, start: str, first: int) -> None:
    read = kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-p", "0", "-o", start, "-f", "%o %s\n")
    assert read == [f"{i} {i}" for i in range(first, 10)]


@pytest.mark.process
@needs_kcat()
@pytest.mark.parametrize(("timestamp", "offset"), [(-2, 0), (-1, 10), (TIMES[3], 3), (AFTER_ALL, -1)])
def test_kcat_queries(bootstrap: str, topic: str, timestamp: int, offset: int) -> None:
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:{timestamp}") == [f"{topic} [0] offset {offset}"]
