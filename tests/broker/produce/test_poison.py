"""Produce: a batch that consumers cannot read is refused, and hurts nothing else in its request."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.codecs import Codec
from penstock.records.record import iter_records
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, fetch, list_offset, produce, produce_request, read_all
from tests.records import poison
from tests.records.poison import field, packed, raw_record

POISON = poison.poison()
UNUSUAL = poison.unusual()
GOOD = packed(Codec.NONE, raw_record(), raw_record(1))
#: more than the event loop decompresses by itself
LARGE = [raw_record(i, value=field(bytes((i * 7919 + k * k) % 256 for k in range(200)))) for i in range(600)]
#: what Kafka has no code for, and answers with UNKNOWN_SERVER_ERROR
OURS_FOR_UNKNOWN = {ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}


def answers(client: RawClient, topic: Topic, batches: dict[str, bytes]) -> dict[str, int]:
    """The error code of each batch, sent one behind the other without waiting."""
    version = PRODUCE.max_version
    for batch in batches.values():
        client.send(PRODUCE, version, produce_request(topic, batch, version=version))
    found = {}
    for name in batches:
        (answered,) = client.receive().responses
        found[name] = answered.partition_responses[0].error_code
    return found


@penstock_only
def test_a_topic_takes_no_poison_and_is_read_to_its_end(client: RawClient) -> None:
    topic = create_topic(client)
    codes = answers(client, topic, {**POISON, **UNUSUAL})

    assert not [name for name in POISON if not codes[name]]
    assert not {name: codes[name] for name in UNUSUAL if codes[name]}
    sent = [record.value for batch in UNUSUAL.values() for record in iter_records(batch)]
    stored = read_all(client, topic)
    assert [record.value for record in stored] == sent
    assert [record.offset for record in stored] == list(range(len(sent)))


@pytest.mark.process
@pytest.mark.slow
def test_apache_kafka_refuses_nothing_that_we_accept(client: RawClient, real_kafka: str) -> None:
    with RawClient(real_kafka) as kafka:
        ours = answers(client, create_topic(client), {**POISON, **UNUSUAL})
        theirs = answers(kafka, create_topic(kafka), {**POISON, **UNUSUAL})

    differing = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    unnamed = {name for name, (own, other) in differing.items() if own in OURS_FOR_UNKNOWN and other == -1}
    assert set(differing) - unnamed == poison.accepted_by_kafka()


@pytest.mark.parametrize("codec", Codec)
def test_other_partitions_of_a_request_are_unharmed(client: RawClient, codec: Codec) -> None:
    """Large batches go through a worker thread, small ones do not."""
    topic = create_topic(client, partitions=4)
    large = packed(codec, *LARGE)
    bad_large = packed(codec, *LARGE, count=len(LARGE) + 1)
    batches = (POISON["none: random bytes"], GOOD, bad_large, large)
    data = [PartitionProduceData(index=i, records=memoryview(batch)) for i, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(topic_id=topic.id, partition_data=data)],
    )

    (answer,) = client.call(PRODUCE, PRODUCE.max_version, request).responses

    codes = [part.error_code for part in sorted(answer.partition_responses, key=lambda part: part.index)]
    assert codes == [ErrorCode.INVALID_RECORD, 0, ErrorCode.INVALID_RECORD, 0]
    assert [fetch(client, topic, 0, partition=i).high_watermark for i in range(4)] == [0, 2, 0, len(LARGE)]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_batches_behind_one_in_a_worker_keep_their_order(client: RawClient, codec: Codec) -> None:
    topic = create_topic(client)
    version = PRODUCE.max_version
    large = packed(codec, *LARGE)
    for batch in (large, GOOD, POISON[f"{codec.label}: zeros"], large, GOOD):
        client.send(PRODUCE, version, produce_request(topic, batch, version=version))

    found = []
    for _ in range(5):
        (answered,) = client.receive().responses
        found.append(answered.partition_responses[0].base_offset)

    assert found == [0, 600, -1, 602, 1202]


@penstock_only
@pytest.mark.parametrize("compression_type", ["zstd", "uncompressed"])
def test_recompression_stores_no_poison(client: RawClient, compression_type: str) -> None:
    topic = create_topic(client, configs={"compression.type": compression_type})
    codes = answers(client, topic, POISON)

    # Recompression numbers records anew.
    numbered = {name for name in POISON if name.partition(": ")[2] in poison.FAULTY_DELTAS}
    accepted = {name for name, code in codes.items() if not code}
    assert accepted <= numbered
    stored = read_all(client, topic)
    assert [record.offset for record in stored] == list(range(3 * len(accepted)))


@penstock_only
def test_a_topic_chooses_its_level(client: RawClient) -> None:
    bad = POISON["none: random bytes"]
    no_frame = POISON["gzip: plain records"]
    for level, accepted in (("header", [True, True]), ("frame", [True, False]), ("records", [False, False])):
        topic = create_topic(client, configs={"penstock.record.validation": level})
        assert [not produce(client, topic, batch).error_code for batch in (bad, no_frame)] == accepted


@penstock_only
def test_requests_that_meet_stored_poison_are_answered(client: RawClient) -> None:
    """A topic may have had a lower level. A search by time, and compaction, read records."""
    topic = create_topic(client, configs={"penstock.record.validation": "header"})
    for name in ("none: random bytes", "gzip: plain records", "zstd: zeros", "none: zeros"):
        assert produce(client, topic, POISON[name]).error_code == ErrorCode.NONE
    assert produce(client, topic, GOOD).error_code == ErrorCode.NONE

    found = list_offset(client, topic, poison.NOW_MS)
    assert found.error_code in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
    assert fetch(client, topic, 0).error_code == ErrorCode.NONE
    assert produce(client, topic, GOOD).error_code == ErrorCode.NONE


@penstock_only
def test_a_topic_chooses_how_much_a_batch_may_unpack_to(client: RawClient) -> None:
    topic = create_topic(client, configs={"penstock.record.decompressed.bytes.max": "1000"})
    small, large = (packed(Codec.LZ4, raw_record(value=field(bytes(size)))) for size in (900, 1000))

    assert produce(client, topic, small).error_code == ErrorCode.NONE
    refused = produce(client, topic, large)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "penstock.record.decompressed.bytes.max" in (refused.error_message or "")
