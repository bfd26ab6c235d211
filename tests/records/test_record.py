from __future__ import annotations

import contextlib
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.records.batch import DELETE_HORIZON_BIT, HEADER_SIZE, crc_matches, is_long, read_header
from penstock.records.codecs import Codec, compress, decompress
from penstock.records.record import (
    Record,
    build_batch,
    build_keyed_batch,
    iter_batches,
    iter_records,
    open_batch,
    recompress,
    seal,
    timestamps,
    walk,
)
from tests.amounts import amount
from tests.records.strategies import record_lists

THREE = [
    Record(0, 1000, b"a", b"one", (("h", b"x"), ("n", None))),
    Record(1, 999, None, b"two"),
    Record(2, 1001, b"", None),
]
BODY = build_batch(THREE)[HEADER_SIZE:]


@given(records=record_lists(gaps=True), codec=st.sampled_from(Codec), base=st.integers(0, 2**40))
def test_round_trip(records: list[Record], codec: Codec, base: int) -> None:
    records = [record._replace(offset=record.offset + base) for record in records]
    batch = build_batch(records, codec=codec, base_offset=base)
    header = read_header(batch)
    assert list(iter_records(batch)) == records
    assert list(timestamps(batch)) == [(record.offset, record.timestamp) for record in records]
    assert crc_matches(batch, header)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset) == (base, records[-1].offset)
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)


@given(
    records=st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=9000)), min_size=1, max_size=80
    ),
    timestamp=st.integers(0, 2**62),
)
def test_a_keyed_batch_is_the_batch_of_its_records(
    records: list[tuple[bytes, bytes | None]], timestamp: int
) -> None:
    whole = [Record(index, timestamp, key, value) for index, (key, value) in enumerate(records)]
    assert build_keyed_batch(records, timestamp) == build_batch(whole)


@pytest.mark.parametrize("reader", [KafkaPythonBatch, AiokafkaBatch])
@settings(max_examples=amount(40))
@given(records=record_lists(gaps=True), codec=st.sampled_from(Codec))
def test_other_clients_read_our_batches(reader: Any, records: list[Record], codec: Codec) -> None:
    theirs = reader(build_batch(records, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])
@settings(max_examples=amount(40))
@given(records=record_lists(), codec=st.sampled_from(Codec))
def test_we_read_the_batches_of_other_clients(builder: Any, records: list[Record], codec: Codec) -> None:
    theirs = builder(2, int(codec), 0, 17, 3, 42, 10**6)
    for offset, timestamp, key, value, headers in records:
        theirs.append(offset, timestamp, key, value, list(headers))
    batch = bytes(theirs.build())
    header = read_header(batch)
    assert list(iter_records(batch)) == records
    assert crc_matches(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (17, 3, 42)


def test_the_header_has_the_given_fields() -> None:
    batch = build_batch(
        THREE,
        codec=Codec.LZ4,
        leader_epoch=5,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        log_append_time=True,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (5, 7, 2)
    assert (header.base_sequence, header.last_sequence, header.last_offset_delta) == (11, 13, 2)
    assert header.compression == Codec.LZ4
    assert header.is_log_append_time
    assert header.is_transactional
    assert not header.is_control
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1001)


def test_with_log_append_time_every_record_has_the_batch_s_time() -> None:
    batch = build_batch(THREE, log_append_time=True)
    assert [record.timestamp for record in iter_records(batch)] == [1001, 1001, 1001]
    assert list(timestamps(batch)) == [(0, 1001), (1, 1001), (2, 1001)]


@pytest.mark.parametrize(
    ("count", "value", "codec", "long"),
    [
        (1000, b"", Codec.NONE, False),
        (1001, b"", Codec.NONE, True),
        (1, bytes(60_000), Codec.NONE, False),
        (1, bytes(70_000), Codec.NONE, True),
        (1, b"", Codec.LZ4, True),
    ],
)
def test_batches_of_many_records_or_bytes_are_long(
    count: int, value: bytes, codec: Codec, long: bool
) -> None:
    assert is_long(build_batch([Record(i, 0, None, value) for i in range(count)], codec=codec)) is long


def test_bytes_too_short_for_a_batch_are_no_batch() -> None:
    assert not is_long(b"\xff" * (HEADER_SIZE - 1))


def test_no_records_are_no_batch() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])


def test_a_header_key_that_is_not_utf8_is_shown_not_refused() -> None:
    raw = build_batch([Record(0, 0, None, None, (("xx", b"v"),))])
    assert next(iter_records(raw.replace(b"xx", b"\xff\xfe"))).headers == (("\ufffd\ufffd", b"v"),)


def test_batches_are_stepped_over_one_behind_the_other() -> None:
    first, second = build_batch(THREE), build_batch(THREE[:1], base_offset=0)
    both = first + second
    assert [(position, header.size) for position, header in iter_batches(both)] == [
        (0, len(first)),
        (len(first), len(second)),
    ]
    assert len(list(iter_batches(both[:-1]))) == 1
    assert list(iter_batches(both[: HEADER_SIZE - 1])) == []


@pytest.mark.parametrize(("position", "byte"), [(16, 1), (8, 0xFF), (11, 48)])
def test_stepping_stops_at_bytes_that_are_no_batch(position: int, byte: int) -> None:
    batch = bytearray(build_batch(THREE[:1]))
    batch[position] = byte
    with pytest.raises(CorruptMessage):
        list(iter_batches(bytes(batch)))


def damaged(body: bytes, count: int = 3) -> bytes:
    """A batch of `body` whose header and checksum are in order."""
    return seal(read_header(build_batch(THREE))._replace(record_count=count), body)


@pytest.mark.parametrize(
    ("why", "batch"),
    [
        ("too few records", damaged(BODY, 4)),
        ("too many records", damaged(BODY, 2)),
        ("negative count", damaged(BODY, -1)),
        ("records without a count", damaged(BODY, 0)),
        ("a count without records", damaged(b"")),
        ("trailing byte", damaged(BODY + b"\0")),
        ("cut", damaged(BODY[:-1])),
        ("negative length", damaged(b"\x01" + BODY[1:])),
        ("length beyond the end", damaged(b"\x7e", 1)),
        ("varint too long", damaged(b"\xff" * 6 + BODY, 3)),
        ("key beyond the end", damaged(bytes((14, 0, 0, 0, 126, 0, 0, 0)), 1)),
        ("value beyond the end", damaged(bytes((12, 0, 0, 0, 1, 126, 0)), 1)),
        ("no header count", damaged(bytes((10, 0, 0, 0, 1, 1)), 1)),
        ("negative header count", damaged(bytes((12, 0, 0, 0, 1, 1, 1)), 1)),
        ("headers that are not there", damaged(bytes((12, 0, 0, 0, 1, 1, 4)), 1)),
        ("negative header key", damaged(bytes((16, 0, 0, 0, 1, 1, 2, 1, 1)), 1)),
        ("header beyond its record", damaged(bytes((16, 0, 0, 0, 1, 1, 2, 8, 1)) + bytes(9), 1)),
        ("bytes behind the headers", damaged(bytes((14, 0, 0, 0, 1, 1, 0, 0)), 1)),
        ("no header", build_batch(THREE)[: HEADER_SIZE - 1]),
        ("not one batch but two", build_batch(THREE) * 2),
        ("unknown codec", seal(read_header(build_batch(THREE))._replace(attributes=5), BODY)),
        ("wrong codec", seal(read_header(build_batch(THREE))._replace(attributes=Codec.ZSTD), BODY)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_bytes_are_corrupt(why: str, batch: bytes) -> None:
    with pytest.raises(CorruptMessage):
        list(iter_records(batch))


def test_old_magic_is_corrupt() -> None:
    batch = bytearray(build_batch(THREE))
    batch[16] = 1
    with pytest.raises(CorruptMessage):
        list(iter_records(batch))


@settings(max_examples=amount(300))
@given(data=st.data(), records=record_lists(), codec=st.sampled_from(Codec))
def test_any_damage_is_read_or_refused_in_our_own_words(
    data: st.DataObject, records: list[Record], codec: Codec
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptMessage, RecordListTooLarge):
        read = list(iter_records(batch, limit=100_000))
        assert sum(len(record.value or b"") for record in read) <= 100_000


def test_a_bomb_is_refused() -> None:
    bomb = build_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(RecordListTooLarge):
        list(iter_records(bomb, limit=50_000))


def test_an_empty_batch_as_compaction_leaves_it_has_no_records() -> None:
    header = read_header(build_batch(THREE, codec=Codec.ZSTD))._replace(record_count=0)
    assert list(iter_records(seal(header, b""))) == []


@settings(max_examples=amount(50))
@given(records=record_lists(gaps=True), old=st.sampled_from(Codec), new=st.sampled_from(Codec))
def test_recompression_changes_the_codec_and_numbers_the_records(
    records: list[Record], old: Codec, new: Codec
) -> None:
    """As Kafka does: offset deltas with gaps would have one offset appear twice in the log."""
    batch = build_batch(
        records, codec=old, base_offset=0, producer_id=9, producer_epoch=1, base_sequence=4, leader_epoch=8
    )
    again = recompress(batch, new)
    before, after = read_header(batch), read_header(again)
    numbered = [record._replace(offset=index) for index, record in enumerate(records)]
    assert list(iter_records(again)) == (records if old is new else numbered)
    assert after.compression == new
    assert crc_matches(again, after)
    assert after._replace(batch_length=0, crc=0, attributes=0) == before._replace(
        batch_length=0, crc=0, attributes=0
    )
    if old is new:
        assert again == batch


def test_recompression_keeps_the_other_attributes_and_spares_control_batches() -> None:
    header, body = open_batch(build_batch(THREE, transactional=True, log_append_time=True))
    horizon = seal(header._replace(attributes=header.attributes | DELETE_HORIZON_BIT), body)
    again = read_header(recompress(horizon, Codec.GZIP))
    assert again.attributes == header.attributes | DELETE_HORIZON_BIT | Codec.GZIP
    control = build_batch(THREE[:1], control=True)
    assert recompress(control, Codec.GZIP) == control


def test_recompression_uses_the_level() -> None:
    batch = build_batch([Record(i, 0, b"k", b"value %d" % i) for i in range(1000)])
    fast, best = recompress(batch, Codec.ZSTD, 1), recompress(batch, Codec.ZSTD, 19)
    assert fast != best
    assert list(iter_records(fast)) == list(iter_records(best))


def test_recompression_stores_the_true_maximum_timestamp() -> None:
    header, body = open_batch(build_batch(THREE))
    forged = seal(header._replace(max_timestamp=header.max_timestamp + 10**6), body)
    assert read_header(recompress(forged, Codec.GZIP)).max_timestamp == header.max_timestamp


def test_numbering_keeps_every_other_byte_of_a_record() -> None:
    """Names of headers that are not UTF-8 among them."""
    records = [Record(i * 70, i, b"k", bytes(i * 50), (("h", None),)) for i in range(4)]
    header, body = open_batch(build_batch(records))
    odd = body.replace(b"h", b"\xff")
    _, again = open_batch(recompress(seal(header, odd), Codec.ZSTD))
    _, plain = open_batch(build_batch([r._replace(offset=i) for i, r in enumerate(records)]))
    assert again == plain.replace(b"h", b"\xff")


def test_a_span_is_the_position_of_a_record() -> None:
    spans = list(walk(BODY, 3))
    assert b"".join(BODY[span.start : span.end] for span in spans) == BODY
    assert [span.value_length for span in spans] == [3, 3, -1]
    assert [span.key for span in spans] == [b"a", None, b""]
    assert [span.timestamp_delta for span in spans] == [0, -1, 1]
    assert [BODY[span.offset_position] for span in spans] == [0, 2, 4]
    assert [BODY[span.body] for span in spans] == [0, 0, 0]


def test_opening_a_batch_gives_its_records_uncompressed() -> None:
    batch = build_batch(THREE, codec=Codec.GZIP)
    header, data = open_batch(batch)
    assert data == BODY
    assert decompress(Codec.GZIP, compress(Codec.GZIP, data)) == data
    assert header == read_header(batch)
