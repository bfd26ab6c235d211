"""A threshold for compression: which producer gets a batch, in which order, and what waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.client import Admin, MisusedClient, Producer
from penstock.client.small_batches import SmallBatches
from penstock.net.client import Peer
from penstock.records.batch import read_header
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic

THRESHOLD = 100


class FakeLibrdkafka:
    """Keeps what is produced until a test acknowledges it; `flush` acknowledges everything."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.queue: list[tuple[Any, Callable[[Any, Any], None]]] = []
        self.full = False
        self.error: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.queue)

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, on_delivery: Any, *, timestamp: int
    ) -> None:
        if self.full:
            raise BufferError
        if self.error is not None:
            raise KafkaException(self.error)
        self.queue.append((value, on_delivery))

    def acknowledge(self) -> None:
        sent, self.queue = self.queue, []
        for value, on_delivery in sent:
            on_delivery(None, value)

    def poll(self, timeout: float) -> None: ...

    def flush(self, timeout: float) -> int:
        self.acknowledge()
        return 0

    def purge(self) -> None:
        sent, self.queue = self.queue, []
        for _, on_delivery in sent:
            on_delivery(KafkaError(KafkaError._PURGE_QUEUE), None)


class Both:
    """A `SmallBatches` over two fakes, and the reports of what was sent through it."""

    def __init__(self, linger_ms: int = 0) -> None:
        made: list[FakeLibrdkafka] = []

        def make(config: dict[str, Any]) -> FakeLibrdkafka:
            made.append(FakeLibrdkafka(config))
            return made[-1]

        config = {"linger.ms": linger_ms, "compression.type": "zstd"}
        self.producer = SmallBatches(config, THRESHOLD, make)
        self.compressing, self.plain = made
        self.reports: list[tuple[Any, Any]] = []

    def send(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.producer.produce("t", value, None, partition, lambda e, m: self.reports.append((e, m)))

    def queued(self) -> tuple[list[bytes], list[bytes]]:
        """In the producer that compresses, and in the other one."""
        return [v for v, _ in self.compressing.queue], [v for v, _ in self.plain.queue]


SMALL, LARGE = b"s" * 10, b"L" * THRESHOLD


def test_a_batch_below_the_threshold_is_not_compressed() -> None:
    both = Both()
    assert (both.compressing.config["compression.type"], both.plain.config["compression.type"]) == (
        "zstd",
        "none",
    )
    both.send(SMALL)
    assert both.queued() == ([], [SMALL])


def test_messages_are_gathered_for_the_linger_time() -> None:
    both = Both(linger_ms=3_600_000)
    both.send(*[SMALL] * 9)
    both.producer.poll(0)
    assert (both.queued(), len(both.producer)) == (([], []), 9)
    both.send(SMALL)
    assert both.queued() == ([SMALL] * 10, [])
    # Another partition has another batch.
    both.send(SMALL, partition=1)
    assert len(both.producer) == 11
    both.producer.flush()
    assert (len(both.reports), len(both.producer)) == (11, 0)


def test_the_other_producer_waits_for_the_acknowledgements() -> None:
    both = Both()
    both.send(SMALL, LARGE, SMALL)
    assert both.queued() == ([], [SMALL])
    both.plain.acknowledge()
    assert both.queued() == ([LARGE], [])
    both.compressing.acknowledge()
    assert both.queued() == ([], [SMALL])
    both.plain.acknowledge()
    assert [message for _, message in both.reports] == [SMALL, LARGE, SMALL]


def test_a_full_queue_is_tried_again_and_an_error_is_reported() -> None:
    both = Both()
    both.plain.full = True
    both.send(SMALL, SMALL)
    assert (both.queued(), len(both.producer)) == (([], []), 2)
    both.plain.full = False
    both.producer.poll(0)
    assert both.queued() == ([], [SMALL, SMALL])
    both.compressing.error = KafkaError(KafkaError._UNKNOWN_PARTITION)
    both.plain.acknowledge()
    both.send(LARGE)
    assert both.reports[-1][0].code() == KafkaError._UNKNOWN_PARTITION
    assert len(both.producer) == 0


def test_a_purge_fails_waiting_messages() -> None:
    both = Both()
    both.send(SMALL, LARGE)
    both.producer.purge()
    assert [error.code() for error, _ in both.reports] == [KafkaError._PURGE_QUEUE] * 2
    assert len(both.producer) == 0


def test_a_threshold_needs_a_codec_and_acknowledgements() -> None:
    with pytest.raises(MisusedClient, match="needs a codec"):
        Producer("127.0.0.1:1", compression_threshold=1)
    with pytest.raises(MisusedClient, match="keep the order"):
        Producer("127.0.0.1:1", compression_threshold=1, compression="zstd", acks=0)


class _Fixed:
    def token(self, size: int) -> bytes:
        return bytes(size)

    def uniform(self, low: float, high: float) -> float:
        return low


async def stored(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """Codec and records of each batch of partition 0."""
    host, _, port = bootstrap.rpartition(":")
    peer = Peer(asyncio.get_running_loop(), host, int(port), client_id="test", rng=_Fixed())
    try:
        named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (found,) = (await peer.send(METADATA, named, 30)).topics
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        request = FetchRequest(
            max_bytes=1 << 20, topics=[FetchTopic(topic_id=found.topic_id, partitions=wanted)]
        )
        (answer,) = (await peer.send(FETCH, request, 30)).responses[0].partitions
        records, batches, position = cast(bytes, answer.records), [], 0
        while position < len(records):
            header = read_header(records, position)
            batches.append((header.compression, header.record_count))
            position += header.size
        return batches
    finally:
        peer.close()


def test_the_broker_gets_small_batches_as_they_are(bootstrap: str, name: str) -> None:
    async def send() -> list[tuple[int, int]]:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name)
        options: dict[str, Any] = {"compression": "gzip", "compression_threshold": 1000, "linger": 0.01}
        async with Producer(bootstrap, **options) as producer:
            first = await producer.send(name, b"small")
            second = await producer.send(name, b"x" * 1000, key=b"k")
            third = await producer.send(name, b"small")
        assert [first.offset, second.offset, third.offset] == [0, 1, 2]
        return await stored(bootstrap, name)

    assert asyncio.run(send()) == [(0, 1), (1, 1), (0, 1)]
