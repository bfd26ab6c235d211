"""Produce: what is refused and how, whose time counts, and what acks promise."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.records.batch import CRC_START
from penstock.records.codecs import Codec
from penstock.records.record import Record
from penstock.storage import record_checks
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.conftest import penstock_only, record_threads
from tests.broker.produce.refusals import errors_of
from tests.broker.raw import RawClient
from tests.broker.requests import (
    AGAINST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_before,
    edge_versions,
    every_version,
    fetch,
    now_ms,
    produce,
    read_all,
    record,
)

ALL = pytest.mark.parametrize("version", every_version(PRODUCE))
EDGES = pytest.mark.parametrize("version", [*edge_versions(PRODUCE), 7, 12])


#: where header fields lie in a batch
ATTRIBUTES, LAST_OFFSET_DELTA, COUNT, MAGIC, SEQUENCE = 21, 23, 57, 16, 53


def altered(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with one header field changed and its checksum made right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    if position >= CRC_START:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[CRC_START:])))
    return bytes(changed)


@ALL
def test_records_get_the_next_offsets(client: RawClient, topic: Topic, version: int) -> None:
    first = produce(client, topic, batch_of([b"0", b"1"]), version=version)
    second = produce(client, topic, batch_of([b"2"]), version=version)

    assert (first.error_code, first.base_offset, first.index) == (ErrorCode.NONE, 0, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 2)
    assert first.log_append_time_ms == -1
    if version >= 5:
        assert first.log_start_offset == 0
    if version >= 8:
        assert (first.record_errors, first.error_message) == ([], None)
    assert [(r.offset, r.value) for r in read_all(client, topic)] == [(0, b"0"), (1, b"1"), (2, b"2")]


@ALL
def test_each_partition_of_a_topic_is_answered_for_itself(client: RawClient, version: int) -> None:
    """What the answers of a topic's partitions have in common is kept once for all of them."""
    topic = create_topic(client, partitions=3)
    append(client, topic, b"0", b"1", b"2", partition=1)
    append(client, topic, b"0", partition=2)
    delete_before(client, topic, 2, partition=1)
    for _ in range(2):
        answers = [produce(client, topic, batch_of([b"x"]), partition=n, version=version) for n in range(3)]
        assert [answer.index for answer in answers] == [0, 1, 2]
        if version >= 5:
            assert [answer.log_start_offset for answer in answers] == [0, 2, 0]
    assert [answer.base_offset for answer in answers] == [1, 4, 2]


def test_keys_values_headers_and_timestamps_come_back(client: RawClient, topic: Topic) -> None:
    at = now_ms() - 5000
    sent = [
        Record(0, at, b"key", b"value", (("h", b"1"), ("h", None), ("", b""))),
        Record(1, at + 1, None, None, ()),
        Record(2, at - 1, b"", b"", ()),
    ]
    produce(client, topic, batch_of(sent))

    assert read_all(client, topic) == sent


@ALL
def test_unknown_names_ids_and_partitions(client: RawClient, topic: Topic, version: int) -> None:
    missing = produce(
        client, Topic("no-such-topic", TopicId(b"\x07" * 16)), batch_of([b"x"]), version=version
    )
    beyond = produce(client, topic, batch_of([b"x"]), partition=5, version=version)

    by_id = version >= 13
    assert missing.error_code == (
        ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.base_offset == beyond.base_offset == -1


def test_partitions_of_one_request_succeed_and_fail_by_themselves(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    damaged = bytearray(batch_of([b"x"]))
    damaged[-1] ^= 1
    data = [
        PartitionProduceData(index=0, records=memoryview(batch_of([b"good"]))),
        PartitionProduceData(index=1, records=memoryview(damaged)),
        PartitionProduceData(index=2, records=memoryview(batch_of([b"nowhere"]))),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic.name, partition_data=data)]
    )

    (answers,) = [t.partition_responses for t in client.call(PRODUCE, 12, request).responses]

    assert {a.index: a.error_code for a in answers} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [r.value for r in read_all(client, topic)] == [b"good"]


def test_a_produce_request_that_the_log_refuses_gets_the_log_start(client: RawClient) -> None:
    topic = create_topic(client, configs={"max.message.bytes": "200"})
    append(client, topic, b"0", b"1", b"2")
    delete_before(client, topic, 2)
    good = batch_of([b"x"])
    refused = {
        "count": altered(good, COUNT, ">i", 2),
        "control": altered(good, ATTRIBUTES, ">h", 0x20),
        "far ahead": batch_of([record(b"x", timestamp=now_ms() + 10_000_000)]),
        "checksum": good[:-1] + b"!",
        "too large": batch_of([bytes(1000)]),
        "two": good + good,
        "cut": good[:-1],
        "old": altered(good, MAGIC, ">b", 1),
    }

    answers = {why: produce(client, topic, batch) for why, batch in refused.items()}

    assert {why: (a.error_code, a.log_start_offset) for why, a in answers.items()} == {
        "count": (ErrorCode.INVALID_RECORD, 2),
        "control": (ErrorCode.INVALID_RECORD, 2),
        "far ahead": (ErrorCode.INVALID_TIMESTAMP, 2),
        "checksum": (ErrorCode.CORRUPT_MESSAGE, -1),
        "too large": (ErrorCode.MESSAGE_TOO_LARGE, -1),
        "two": (ErrorCode.INVALID_RECORD, -1),
        "cut": (ErrorCode.INVALID_RECORD, -1),
        "old": (ErrorCode.INVALID_RECORD, -1),
    }
    nowhere = produce(client, topic, good, partition=7)
    assert (nowhere.error_code, nowhere.log_start_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_produce_request_that_is_refused_later_gets_the_log_start(client: RawClient) -> None:
    topic = create_topic(client, configs={"compression.type": "gzip"})
    append(client, topic, b"0", b"1")
    delete_before(client, topic, 1)

    answer = produce(client, topic, altered(batch_of([b"x"]), LAST_OFFSET_DELTA, ">i", 5))

    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, 1)


@EDGES
@pytest.mark.parametrize("magic", [0, 1])
def test_magic_below_2_is_an_invalid_record(
    client: RawClient, topic: Topic, version: int, magic: int
) -> None:
    answer = produce(client, topic, altered(batch_of([b"x"]), MAGIC, ">b", magic), version=version)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert fetch(client, topic, 0).high_watermark == 0


@EDGES
@pytest.mark.parametrize(
    ("deltas", "count"), [(0, 2), (5, 2), (-1, 2), (1, 1), (1, 3), (1, 0), (1, -1), (0x7FFFFFFF, 2)]
)
def test_a_last_offset_delta_that_does_not_match_the_count_is_refused(
    client: RawClient, topic: Topic, version: int, deltas: int, count: int
) -> None:
    batch = altered(batch_of([b"0", b"1"]), LAST_OFFSET_DELTA, ">i", deltas)

    answer = produce(client, topic, altered(batch, COUNT, ">i", count), version=version)

    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert fetch(client, topic, 0).high_watermark == 0


@EDGES
def test_a_checksum_that_does_not_match_is_a_corrupt_message(
    client: RawClient, topic: Topic, version: int
) -> None:
    batch = bytearray(batch_of([b"value"]))
    batch[-3] ^= 0x40

    answer = produce(client, topic, bytes(batch), version=version)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@EDGES
def test_a_partition_takes_exactly_one_batch(client: RawClient, topic: Topic, version: int) -> None:
    one = batch_of([b"x"])

    # Apache Kafka never answers where there are no records at all.
    for records in (one + one, b"", *([] if AGAINST else [None])):
        answer = produce(client, topic, records, version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD
    assert fetch(client, topic, 0).high_watermark == 0


def test_a_batch_that_is_cut_short_is_refused(client: RawClient, topic: Topic) -> None:
    whole = batch_of([b"x" * 100])

    for size in (5, 16, 40, 61, len(whole) - 1):
        answer = produce(client, topic, whole[:size], version=12)
        assert answer.error_code == ErrorCode.INVALID_RECORD, size
    assert fetch(client, topic, 0).high_watermark == 0


@pytest.mark.parametrize(
    ("position", "layout", "value", "code"),
    [
        (ATTRIBUTES, ">h", 0x20, ErrorCode.INVALID_RECORD),  # a control batch
        # log append time; Kafka lets it pass where the topic has it otherwise
        pytest.param(ATTRIBUTES, ">h", 0x08, ErrorCode.INVALID_TIMESTAMP, marks=penstock_only),
        (0, ">q", 5, ErrorCode.INVALID_RECORD),  # a base offset
    ],
)
def test_batches_with_fields_reserved_for_brokers_are_refused(
    client: RawClient, topic: Topic, position: int, layout: str, value: int, code: ErrorCode
) -> None:
    answer = produce(client, topic, altered(batch_of([b"x"]), position, layout, value))

    assert answer.error_code == code
    assert fetch(client, topic, 0).high_watermark == 0


def test_a_producer_id_needs_a_sequence(client: RawClient, topic: Topic) -> None:
    answer = produce(client, topic, batch_of([b"x"], producer_id=77, producer_epoch=0, base_sequence=-1))

    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_needs_version_7(client: RawClient, topic: Topic, version: int) -> None:
    answer = produce(client, topic, batch_of([b"x"], Codec.ZSTD), version=version)

    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", range(7, 14))
def test_zstd_is_taken_from_version_7_on(client: RawClient, topic: Topic, version: int) -> None:
    answer = produce(client, topic, batch_of([b"x"], Codec.ZSTD), version=version)

    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(client: RawClient, topic: Topic, codec: int) -> None:
    answer = produce(client, topic, altered(batch_of([b"x"]), ATTRIBUTES, ">h", codec))

    assert answer.error_code != ErrorCode.NONE
    assert fetch(client, topic, 0).high_watermark == 0


@EDGES
def test_max_message_bytes_bounds_a_batch(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"max.message.bytes": "1000"})
    fits = batch_of([b"x" * 900])
    overhead = len(fits) - 900
    exactly = batch_of([b"x" * (1000 - overhead)])
    one_more = batch_of([b"x" * (1001 - overhead)])
    assert len(exactly) == 1000

    codes = [produce(client, topic, b, version=version).error_code for b in (fits, exactly, one_more)]

    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]


def test_max_message_bytes_counts_compressed_bytes(client: RawClient) -> None:
    topic = create_topic(client, configs={"max.message.bytes": "1000"})

    assert produce(client, topic, batch_of([b"x" * 50_000], Codec.GZIP)).error_code == ErrorCode.NONE


def test_a_message_of_a_megabyte_comes_back(client: RawClient, topic: Topic) -> None:
    large = bytes(range(256)) * 4000
    append(client, topic, large)
    append(client, topic, b"small")

    assert [r.value for r in read_all(client, topic)] == [large, b"small"]


@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_refuse_records_without_keys_and_name_them(
    client: RawClient, version: int, codec: Codec
) -> None:
    topic = create_topic(client, configs={"cleanup.policy": "compact"})
    if codec is Codec.ZSTD and version < 7:
        codec = Codec.LZ4
    records = [record(b"0", key=b"k"), record(b"1"), record(b"2", key=b""), record(None)]

    code, indexes = errors_of(client, topic, records, version, codec)

    assert code == ErrorCode.INVALID_RECORD
    assert indexes == ([1, 3] if version >= 8 else [])
    assert fetch(client, topic, 0).high_watermark == 0


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", list(Codec))
def test_compacted_topics_take_records_with_keys(client: RawClient, policy: str, codec: Codec) -> None:
    topic = create_topic(client, configs={"cleanup.policy": policy})

    code, _ = errors_of(client, topic, [record(b"0", key=b"k"), record(None, key=b"")], 13, codec)

    assert code == ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("key", [b"k", None])
def test_all_refused_records_are_named_with_different_errors(
    client: RawClient, codec: Codec, key: bytes | None
) -> None:
    """A timestamp decides about the code, but records without a key are named beside it."""
    topic = create_topic(
        client, configs={"cleanup.policy": "compact", "message.timestamp.after.max.ms": "30000"}
    )
    late = now_ms() + 60_000
    records = [record(b"0", key=b"k"), record(b"1"), record(b"2", key=key, timestamp=late), record(b"3")]

    code, indexes = errors_of(client, topic, records, 13, codec)

    assert code == (ErrorCode.INVALID_TIMESTAMP if key else ErrorCode.INVALID_RECORD)
    assert indexes == [1, 2, 3]


@penstock_only
@pytest.mark.parametrize(
    ("count", "codec", "long"),
    [
        (10, Codec.NONE, False),
        (2001, Codec.NONE, True),
        (10, Codec.ZSTD, False),
        (10, Codec.GZIP, False),
        (9000, Codec.ZSTD, True),
    ],
)
def test_long_batches_are_not_walked_on_the_event_loop(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, count: int, codec: Codec, long: bool
) -> None:
    topic = create_topic(client, configs={"cleanup.policy": "compact"})
    threads = record_threads(monkeypatch, record_checks, "_check_each")

    taken = produce(client, topic, batch_of([record(b"", key=b"")] * count, codec))
    refused = produce(client, topic, batch_of([record(b"", key=b"")] * (count - 1) + [record(b"")], codec))

    assert (taken.error_code, taken.base_offset) == (ErrorCode.NONE, 0)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [count - 1]
    # Without a null key there is nothing to name.
    assert [name.startswith("penstock-worker") for name in threads] == [long]
    assert fetch(client, topic, 0).high_watermark == count
