"""Topics that insist on a codec: batches are recompressed, and stay in their order."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.batch import crc_matches, read_header
from penstock.records.codecs import Codec
from penstock.records.record import seal
from penstock.testing import broker
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.produce import PRODUCE, ProduceResponse
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    fetch,
    new_producer_id,
    only_partition,
    produce,
    produce_request,
    read_all,
    record,
    records_in,
    stored_batches,
    until,
)

LABELS = {
    Codec.NONE: "uncompressed",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}
PAIRS = [(sent, wanted) for sent in Codec for wanted in Codec]


def stored_codecs(client: RawClient, topic: Topic) -> list[int]:
    return [read_header(batch).compression for batch in stored_batches(fetch(client, topic, 0))]


@pytest.mark.parametrize(("sent", "wanted"), PAIRS)
def test_a_batch_is_stored_in_the_topics_codec(client: RawClient, sent: Codec, wanted: Codec) -> None:
    topic = create_topic(client, configs={"compression.type": LABELS[wanted]})
    records = [record(b"%d" % i * 50, key=b"k%d" % i, headers=(("h", b"v"),)) for i in range(10)]

    answer = produce(client, topic, batch_of(records, sent))

    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert stored_codecs(client, topic) == [wanted]
    (stored,) = stored_batches(fetch(client, topic, 0))
    assert crc_matches(stored, read_header(stored))
    assert read_all(client, topic) == [r._replace(offset=i) for i, r in enumerate(records)]


@pytest.mark.parametrize("sent", list(Codec))
def test_codec_producer_keeps_the_codec_of_the_producer(client: RawClient, sent: Codec) -> None:
    topic = create_topic(client, configs={"compression.type": "producer"})
    produce(client, topic, batch_of([b"x" * 100], sent))

    assert stored_codecs(client, topic) == [sent]


@pytest.mark.parametrize("wanted", list(Codec))
def test_pipelined_batches_of_an_idempotent_producer_keep_their_order(
    client: RawClient, wanted: Codec
) -> None:
    """A batch that needs no work must not overtake one that is being recompressed."""
    topic = create_topic(client, configs={"compression.type": LABELS[wanted]})
    producer_id = new_producer_id(client)
    rng = random.Random(wanted)
    count = 60
    for sequence in range(count):
        codec = wanted if rng.random() < 0.5 else rng.choice(list(Codec))
        size = rng.choice((10, 100_000))
        batch = batch_of(
            [b"%d " % sequence + bytes(size)],
            codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        client.send(PRODUCE, 12, produce_request(topic, batch, version=12))

    answers = []
    for _ in range(count):
        response = client.receive()
        assert isinstance(response, ProduceResponse)
        answers.append(only_partition(response))

    assert [(a.error_code, a.base_offset) for a in answers] == [(0, i) for i in range(count)]
    values = [r.value for r in read_all(client, topic)]
    assert [int(v.split(b" ", 1)[0]) for v in values if v is not None] == list(range(count))


def test_order_holds_while_the_topic_changes_its_mind(client: RawClient) -> None:
    topic = create_topic(client, configs={"compression.type": "gzip"})
    producer_id = new_producer_id(client)

    def send(sequence: int) -> None:
        batch = batch_of(
            [b"%d" % sequence * 50_000], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        client.send(PRODUCE, 12, produce_request(topic, batch, version=12))

    for sequence in range(5):
        send(sequence)
    with client.another() as admin:
        set_config(admin, topic, "compression.type", "producer")
    for sequence in range(5, 10):
        send(sequence)

    responses = [client.receive() for _ in range(10)]
    offsets = [only_partition(r).base_offset for r in responses if isinstance(r, ProduceResponse)]
    assert offsets == list(range(10))


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks_of_recompressed_batches(client: RawClient, acks: int) -> None:
    topic = create_topic(client, configs={"compression.type": "lz4"})
    request = produce_request(topic, batch_of([b"x"]), acks=acks, version=12)
    client.send(PRODUCE, 12, request, answered=bool(acks))
    if acks:
        client.receive()

    until(lambda: bool(read_all(client, topic)))
    assert [r.value for r in read_all(client, topic)] == [b"x"]


def test_a_duplicate_is_recognised_although_it_was_recompressed(client: RawClient) -> None:
    topic = create_topic(client, configs={"compression.type": "zstd"})
    batch = batch_of([b"x"], producer_id=new_producer_id(client), producer_epoch=0, base_sequence=0)

    offsets = [produce(client, topic, batch).base_offset for _ in range(2)]

    assert offsets == [0, 0]
    assert len(read_all(client, topic)) == 1


def test_log_append_time_is_stamped_on_the_stored_batch(client: RawClient) -> None:
    configs = {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    topic = create_topic(client, configs=configs)

    answer = produce(client, topic, batch_of([record(b"x", timestamp=5)]))

    found = fetch(client, topic, 0)
    (stored,) = stored_batches(found)
    assert crc_matches(stored, read_header(stored))
    assert [r.timestamp for r in records_in(found)] == [answer.log_append_time_ms]


def test_compacted_topics_check_keys_under_any_codec(client: RawClient) -> None:
    topic = create_topic(client, configs={"compression.type": "gzip", "cleanup.policy": "compact"})

    refused = produce(client, topic, batch_of([record(b"x", key=b"k"), record(b"y")], Codec.LZ4))
    taken = produce(client, topic, batch_of([record(b"x", key=b"k")], Codec.LZ4))

    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in refused.record_errors] == [1]
    assert (taken.error_code, taken.base_offset) == (ErrorCode.NONE, 0)


# -- what cannot be recompressed


def damaged(batch: bytes, position: int) -> bytes:
    changed = bytearray(batch)
    changed[position] ^= 0x55
    return bytes(changed)


@pytest.fixture
def gzip_topic(client: RawClient) -> Iterator[Topic]:
    topic = create_topic(client, configs={"compression.type": "gzip"})
    yield topic
    assert fetch(client, topic, 0).high_watermark == 0


def test_a_wrong_checksum_gets_no_new_one(client: RawClient, gzip_topic: Topic) -> None:
    answer = produce(client, gzip_topic, damaged(batch_of([b"x" * 100]), 80))

    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


@penstock_only  # in Kafka an unknown error
def test_bytes_that_their_codec_cannot_decode_are_invalid(client: RawClient, gzip_topic: Topic) -> None:
    for codec in (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        plain = batch_of([b"not compressed at all" * 10])
        header = read_header(plain)._replace(attributes=int(codec))
        answer = produce(client, gzip_topic, seal(header, plain[61:]))
        assert answer.error_code == ErrorCode.INVALID_RECORD, codec


def test_bytes_that_are_no_records_are_invalid(client: RawClient, gzip_topic: Topic) -> None:
    answer = produce(client, gzip_topic, seal(read_header(batch_of([b"x"])), b"\xff" * 20))

    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_piece_of_a_batch_behind_a_batch_is_left_out(client: RawClient) -> None:
    topic = create_topic(client, configs={"compression.type": "gzip"})

    answer = produce(client, topic, batch_of([b"x"]) + batch_of([b"y"])[:-1])

    assert answer.error_code == ErrorCode.NONE
    assert stored_codecs(client, topic) == [Codec.GZIP]


@pytest.mark.parametrize("magic", [0, 1])
def test_magic_below_2_is_an_invalid_record_here_too(
    client: RawClient, gzip_topic: Topic, magic: int
) -> None:
    batch = bytearray(batch_of([b"x"]))
    struct.pack_into(">b", batch, 16, magic)

    assert produce(client, gzip_topic, bytes(batch)).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_are_an_invalid_record_here_too(client: RawClient, gzip_topic: Topic) -> None:
    one = batch_of([b"x"])

    for records in (one + one, b""):
        assert produce(client, gzip_topic, records).error_code == ErrorCode.INVALID_RECORD


def test_a_last_offset_delta_that_does_not_match_is_refused_here_too(
    client: RawClient, gzip_topic: Topic
) -> None:
    header = read_header(batch_of([b"0", b"1"]))._replace(last_offset_delta=5)

    answer = produce(client, gzip_topic, seal(header, batch_of([b"0", b"1"])[61:]))

    assert answer.error_code == ErrorCode.INVALID_RECORD


@penstock_only
def test_a_bomb_is_refused(client: RawClient, gzip_topic: Topic) -> None:
    """A few kilobytes that unpack to more than anyone may send."""
    bomb = batch_of([bytes(300 << 20)], Codec.ZSTD)
    assert len(bomb) < 1_000_000

    answer = produce(client, gzip_topic, bomb)

    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "penstock.record.decompressed.bytes.max" in (answer.error_message or "")


def test_recompressed_batches_are_flushed_before_they_are_acknowledged(tmp_path: Path) -> None:
    settings = {"penstock.flush": "group", "compression.type": "lz4"}
    with broker(data=tmp_path, config=settings) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        for i in range(3):
            assert produce(client, topic, batch_of([b"%d" % i])).base_offset == i

        assert fetch(client, topic, 0).high_watermark == 3
        partition = running.broker.stages.storage.partitions.find(topic.name, 0)
        assert partition.log.recovery_point == 3  # type: ignore[union-attr]


def set_config(client: RawClient, topic: Topic, name: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=2,
        resource_name=topic.name,
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = client.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert result.error_code == ErrorCode.NONE
