"""Produce: batches whose header does not match their records are put right or refused, as by Kafka."""

from __future__ import annotations

import lz4.frame
import pytest

from penstock.model.errors import ErrorCode
from penstock.records.batch import HEADER_SIZE, crc_matches, read_header
from penstock.records.codecs import Codec, compress
from penstock.records.record import build_batch, open_batch, seal
from tests.broker.raw import RawClient
from tests.broker.requests import (
    MAX_TIMESTAMP,
    batch_of,
    create_topic,
    fetch,
    list_offset,
    now_ms,
    produce,
    read_all,
    record,
    stored_batches,
)


def with_max_timestamp(batch: bytes, max_timestamp: int) -> bytes:
    header = read_header(batch)
    return seal(header._replace(max_timestamp=max_timestamp), batch[HEADER_SIZE:])


@pytest.mark.parametrize(
    ("records", "wrong_by", "configs"),
    [
        (1, -1000, {}),
        (1, 1000, {}),
        (3, -(10**6), {}),
        (1, 10**9, {}),
        (3, 10**9, {}),
        (3, 1000, {"cleanup.policy": "compact"}),
        (3, -1, {"cleanup.policy": "compact"}),
        (3, 10**9, {"message.timestamp.before.max.ms": "3600000"}),
        (3, 1000, {"compression.type": "gzip"}),
        (1500, 10**9, {"message.timestamp.before.max.ms": "3600000"}),
    ],
)
def test_the_stored_maximum_timestamp_is_that_of_the_records(
    client: RawClient, records: int, wrong_by: int, configs: dict[str, str]
) -> None:
    topic = create_topic(client, configs=configs)
    now = now_ms()
    batch = batch_of([record(b"x", key=b"k", timestamp=now + i % 3) for i in range(records)])
    true = read_header(batch).max_timestamp

    answer = produce(client, topic, with_max_timestamp(batch, true + wrong_by))

    assert answer.error_code == ErrorCode.NONE, answer.error_message
    (stored,) = stored_batches(fetch(client, topic, 0))
    assert read_header(stored).max_timestamp == true
    assert crc_matches(stored, read_header(stored))
    latest = list_offset(client, topic, MAX_TIMESTAMP)
    assert latest.timestamp == true


DELTAS = pytest.mark.parametrize("deltas", [(0, 2, 4), (5, 1, 2), (0, 0, 2)])


def with_deltas(deltas: tuple[int, ...], codec: Codec) -> bytes:
    """A batch of three records whose offset deltas are anything, but for the header."""
    records = [record(b"%d" % i, key=b"k%d" % i)._replace(offset=d) for i, d in enumerate(deltas)]
    header, body = open_batch(build_batch(records))
    return seal(header._replace(last_offset_delta=2, attributes=codec), compress(codec, body))


@DELTAS
@pytest.mark.parametrize(("codec", "wanted"), [("gzip", "lz4"), ("none", "zstd"), ("zstd", "uncompressed")])
def test_records_that_are_recompressed_are_numbered(
    client: RawClient, codec: str, wanted: str, deltas: tuple[int, ...]
) -> None:
    """Offsets behind the last delta of a header go to the next batch: one would appear twice."""
    topic = create_topic(client, configs={"compression.type": wanted})

    for _ in range(2):
        answer = produce(client, topic, with_deltas(deltas, Codec.from_label(codec)))
        assert answer.error_code == ErrorCode.NONE

    assert [(r.offset, r.key) for r in read_all(client, topic)] == [(i, b"k%d" % (i % 3)) for i in range(6)]


@DELTAS
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_compressed_records_that_are_not_numbered_are_refused(
    client: RawClient, codec: Codec, deltas: tuple[int, ...]
) -> None:
    topic = create_topic(client, configs={"cleanup.policy": "compact"})

    answer = produce(client, topic, with_deltas(deltas, codec))

    # Kafka has no code of its own for this: -1.
    assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert fetch(client, topic, 0).high_watermark == 0


@pytest.mark.parametrize("compression_type", ["producer", "lz4", "gzip", "uncompressed"])
def test_lz4_frames_with_linked_blocks_are_refused(client: RawClient, compression_type: str) -> None:
    """Java cannot read them."""
    topic = create_topic(client, configs={"compression.type": compression_type})
    header, body = open_batch(batch_of([record(b"x" * 100_000, key=b"k")]))
    header = header._replace(attributes=Codec.LZ4)
    linked, independent = (
        seal(header, lz4.frame.compress(body, block_linked=is_linked)) for is_linked in (True, False)
    )

    refused = produce(client, topic, linked)

    # Kafka has no code of its own for this: -1.
    assert refused.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert produce(client, topic, independent).error_code == ErrorCode.NONE
