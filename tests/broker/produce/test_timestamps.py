"""Limits of timestamps, and the append time."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.batch import crc_matches, read_header
from penstock.records.codecs import Codec
from penstock.wire.apis.produce import (
    PRODUCE,
)
from tests.broker.produce.refusals import errors_of
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    edge_versions,
    fetch,
    now_ms,
    produce,
    record,
    records_in,
    stored_batches,
)

EDGES = pytest.mark.parametrize("version", [*edge_versions(PRODUCE), 7, 12])


@pytest.mark.parametrize("version", [3, 8, 13])
def test_records_too_far_ahead_of_the_clock_are_named(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"message.timestamp.after.max.ms": "30000"})
    records = [record(b"0"), record(b"1", timestamp=now_ms() + 60_000), record(b"2")]

    code, indexes = errors_of(client, topic, records, version)

    assert code == ErrorCode.INVALID_TIMESTAMP
    assert indexes == ([1] if version >= 8 else [])


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_records_too_far_behind_the_clock_are_named(client: RawClient, version: int, codec: Codec) -> None:
    topic = create_topic(client, configs={"message.timestamp.before.max.ms": "30000"})
    records = [record(b"0"), record(b"1"), record(b"2", timestamp=now_ms() - 60_000)]

    code, indexes = errors_of(client, topic, records, version, codec)

    assert code == ErrorCode.INVALID_TIMESTAMP
    assert indexes == ([2] if version >= 8 else [])


def test_timestamps_may_be_an_hour_ahead_unless_the_topic_allows_more(
    client: RawClient, topic: Topic
) -> None:
    near = produce(client, topic, batch_of([record(b"x", timestamp=now_ms() + 3_500_000)]))
    far = produce(client, topic, batch_of([record(b"x", timestamp=now_ms() + 3_700_000)]))
    old = produce(client, topic, batch_of([record(b"x", timestamp=1)]))

    assert near.error_code == old.error_code == ErrorCode.NONE
    assert far.error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_of_a_long_batch_too_far_ahead_of_the_clock_are_named(
    client: RawClient, topic: Topic, codec: Codec
) -> None:
    records = [*[record(b"")] * 1500, record(b"", timestamp=now_ms() + 7_200_000)]

    assert errors_of(client, topic, records, 13, codec) == (ErrorCode.INVALID_TIMESTAMP, [1500])


@EDGES
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_with_log_append_time_the_brokers_clock_counts(client: RawClient, version: int, codec: Codec) -> None:
    topic = create_topic(client, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    answer = produce(
        client,
        topic,
        batch_of([record(b"0", timestamp=5), record(b"1", timestamp=9)], codec),
        version=version,
    )
    after = now_ms()

    assert answer.error_code == ErrorCode.NONE
    assert before <= answer.log_append_time_ms <= after
    found = fetch(client, topic, 0)
    assert [r.timestamp for r in records_in(found)] == [answer.log_append_time_ms] * 2
    (stored,) = stored_batches(found)
    header = read_header(stored)
    assert header.is_log_append_time
    assert header.max_timestamp == answer.log_append_time_ms
    assert crc_matches(stored, header)


def test_with_log_append_time_no_timestamp_is_refused(client: RawClient) -> None:
    configs = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1000"}
    topic = create_topic(client, configs=configs)

    for timestamp in (0, now_ms() + 10_000_000):
        answer = produce(client, topic, batch_of([record(b"x", timestamp=timestamp)]))
        assert answer.error_code == ErrorCode.NONE
