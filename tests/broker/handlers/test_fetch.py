"""Fetch: where it starts and ends, how much it brings, how long it waits."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.records.batch import read_header
from penstock.records.codecs import Codec
from penstock.wire.apis.fetch import FETCH
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    delete_topic,
    edge_versions,
    every_version,
    fetch,
    fetch_request,
    produce,
    records_in,
    stored_batches,
    values_in,
    wanted,
)


@pytest.mark.parametrize("version", every_version(FETCH))
def test_an_offset_inside_a_batch_brings_that_batch(client: RawClient, topic: Topic, version: int) -> None:
    append(client, topic, b"0", b"1", b"2")
    append(client, topic, b"3", b"4")

    answer = fetch(client, topic, 1, version=version)

    assert values_in(answer) == [b"0", b"1", b"2", b"3", b"4"]
    assert [r.offset for r in records_in(answer)] == [0, 1, 2, 3, 4]
    assert answer.high_watermark == answer.last_stable_offset == 5
    assert answer.error_code == ErrorCode.NONE


def test_the_last_offset_of_a_batch_brings_that_batch(client: RawClient, topic: Topic) -> None:
    append(client, topic, b"0", b"1", b"2")
    append(client, topic, b"3")

    assert values_in(fetch(client, topic, 2)) == [b"0", b"1", b"2", b"3"]
    assert values_in(fetch(client, topic, 3)) == [b"3"]


def test_stored_batches_carry_offset_and_leader_epoch(client: RawClient, topic: Topic) -> None:
    append(client, topic, b"0", b"1")
    append(client, topic, b"2")

    headers = [read_header(batch) for batch in stored_batches(fetch(client, topic, 0))]

    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 0), (2, 0)]


@pytest.mark.parametrize("version", edge_versions(FETCH))
def test_the_end_of_the_log_is_empty_and_beyond_it_out_of_range(
    client: RawClient, topic: Topic, version: int
) -> None:
    append(client, topic, b"0")

    at_end = fetch(client, topic, 1, version=version)
    beyond = fetch(client, topic, 2, version=version)
    before = fetch(client, topic, -1, version=version)

    assert (at_end.error_code, at_end.high_watermark, values_in(at_end)) == (ErrorCode.NONE, 1, [])
    assert beyond.error_code == before.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert beyond.high_watermark == -1


def test_an_empty_log_is_read_without_records_and_without_an_error(client: RawClient, topic: Topic) -> None:
    answer = fetch(client, topic, 0)

    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (ErrorCode.NONE, 0, 0)
    assert values_in(answer) == []


@pytest.mark.parametrize("version", [v for v in edge_versions(FETCH) if v < 13])
def test_an_unknown_name_or_partition_is_unknown(client: RawClient, topic: Topic, version: int) -> None:
    missing = fetch(client, Topic("no-such-topic", topic.id), 0, version=version)
    beyond = fetch(client, topic, 0, partition=1, version=version)

    assert missing.error_code == beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [13, 18])
def test_an_unknown_topic_id_has_an_error_of_its_own(client: RawClient, topic: Topic, version: int) -> None:
    unknown = fetch(client, Topic(topic.name, TopicId(b"\x07" * 16)), 0, version=version)
    beyond = fetch(client, topic, 0, partition=1, version=version)

    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert beyond.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_unknown_topic_does_not_hide_the_others(client: RawClient, topic: Topic) -> None:
    append(client, topic, b"0")
    unknown = Topic("", TopicId(b"\x07" * 16))
    request = fetch_request([(unknown, [wanted(0)]), (topic, [wanted(0)])], version=18)

    answers = {t.topic_id: t.partitions[0] for t in client.call(FETCH, 18, request).responses}

    assert answers[unknown.id].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values_in(answers[topic.id]) == [b"0"]


def test_a_deleted_topic_that_is_made_again_has_new_data_and_a_new_id(client: RawClient) -> None:
    old = create_topic(client)
    append(client, old, b"old")
    delete_topic(client, old)
    assert fetch(client, old, 0, version=18).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(client, old, 0, version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    new = create_topic(client, old.name)
    append(client, new, b"new")

    assert new.id != old.id
    assert values_in(fetch(client, new, 0)) == [b"new"]
    assert values_in(fetch(client, new, 0, version=12)) == [b"new"]
    assert fetch(client, old, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(client, old, batch_of([b"late"])).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [9, 12, 18])
def test_a_leader_epoch_that_is_not_ours_is_fenced_or_unknown(
    client: RawClient, topic: Topic, version: int
) -> None:
    current = fetch(client, topic, 0, version=version, current_leader_epoch=0)
    newer = fetch(client, topic, 0, version=version, current_leader_epoch=1)

    assert current.error_code == ErrorCode.NONE
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [12, 18])
def test_a_reader_whose_last_epoch_we_have_does_not_diverge(
    client: RawClient, topic: Topic, version: int
) -> None:
    empty = fetch(client, topic, 0, version=version, last_fetched_epoch=0)
    append(client, topic, b"0", b"1")
    within = fetch(client, topic, 1, version=version, last_fetched_epoch=0)

    assert (empty.error_code, empty.diverging_epoch) == (ErrorCode.NONE, None)
    assert (within.error_code, within.diverging_epoch) == (ErrorCode.NONE, None)
    assert values_in(within) == [b"0", b"1"]


@pytest.mark.parametrize("version", [12, 18])
def test_a_reader_ahead_of_its_last_epoch_gets_the_diverging_offset(
    client: RawClient, topic: Topic, version: int
) -> None:
    append(client, topic, b"0", b"1")

    answer = fetch(client, topic, 5, version=version, last_fetched_epoch=0)

    assert answer.error_code == ErrorCode.NONE
    assert answer.diverging_epoch is not None
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
    assert values_in(answer) == []


@pytest.mark.parametrize("version", [4, 9, 10, 11, 12, 18])
@pytest.mark.parametrize("compression_type", ["producer", "zstd"])
def test_zstd_is_sent_to_any_version(client: RawClient, compression_type: str, version: int) -> None:
    """Like Apache Kafka since 4.0, which does not look at what it sends."""
    topic = create_topic(client, configs={"compression.type": compression_type})
    append(client, topic, b"plain")
    produce(client, topic, batch_of([b"zstd"], Codec.ZSTD))

    answer = fetch(client, topic, 0, version=version)

    assert (answer.error_code, values_in(answer)) == (ErrorCode.NONE, [b"plain", b"zstd"])


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_come_back_byte_for_byte(client: RawClient, topic: Topic, codec: Codec) -> None:
    sent = batch_of([b"a" * 100, b"b"], codec)
    produce(client, topic, sent)

    (stored,) = stored_batches(fetch(client, topic, 0))

    # Everything behind the fields that the broker stamps: offset, length, leader epoch.
    assert stored[16:] == sent[16:]
