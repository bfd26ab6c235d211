"""Idempotent producers: sequences, duplicates, epochs, and how long all that is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.testing import broker, cluster
from penstock.wire.apis.produce import PRODUCE, ProduceResponse
from tests.broker.idempotent_producers import LAST_SEQUENCE, Producer, producers, values
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    describe_topic,
    every_version,
    new_name,
    now_ms,
    only_partition,
    produce,
    produce_request,
    record,
    until,
)
from tests.testing.cluster_clients import create


@pytest.fixture
def producer(client: RawClient, topic: Topic) -> Producer:
    return Producer(client, topic)


@pytest.mark.parametrize("version", every_version(PRODUCE))
def test_a_duplicate_is_answered_with_its_original_offset(
    client: RawClient, topic: Topic, producer: Producer, version: int
) -> None:
    original = producer.send(0, count=3, version=version)
    producer.send(3, version=version)

    again = producer.send(0, count=3, version=version)

    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, original.base_offset) == (0, 0)
    assert values(client, topic) == [b"0", b"1", b"2", b"3"]


def test_the_last_five_batches_are_remembered(client: RawClient, topic: Topic, producer: Producer) -> None:
    for sequence in range(6):
        producer.offset(sequence)

    assert [producer.offset(sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert producer.send(0).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(values(client, topic)) == 6


@pytest.mark.parametrize("sequence", [2, 10, LAST_SEQUENCE])
def test_a_gap_in_the_sequences_is_refused(
    client: RawClient, topic: Topic, producer: Producer, sequence: int
) -> None:
    producer.offset(0)

    answer = producer.send(sequence)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.offset(1) == 1
    assert values(client, topic) == [b"0", b"1"]


def test_a_batch_that_overlaps_is_no_duplicate(producer: Producer) -> None:
    producer.offset(0, count=3)

    assert producer.send(1, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(0, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(2, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_is_not_known_may_start_anywhere(producer: Producer) -> None:
    assert producer.offset(1000) == 0
    assert producer.offset(1001) == 1


def test_sequences_wrap(client: RawClient, topic: Topic, producer: Producer) -> None:
    producer.offset(LAST_SEQUENCE - 1)
    producer.offset(LAST_SEQUENCE)

    assert producer.offset(0) == 2
    assert producer.offset(LAST_SEQUENCE) == 1
    assert values(client, topic) == [b"%d" % (LAST_SEQUENCE - 1), b"%d" % LAST_SEQUENCE, b"0"]


def test_a_batch_may_reach_over_the_last_sequence(producer: Producer) -> None:
    producer.offset(LAST_SEQUENCE - 1, count=4)

    assert producer.offset(2) == 4
    assert producer.offset(LAST_SEQUENCE - 1, count=4) == 0


def test_a_new_epoch_starts_with_sequence_zero(producer: Producer) -> None:
    producer.offset(0)
    producer.offset(1)

    assert producer.send(2, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.offset(0, epoch=1) == 2
    assert producer.offset(1, epoch=1) == 3


def test_an_older_epoch_is_fenced(client: RawClient, topic: Topic, producer: Producer) -> None:
    producer.offset(0, epoch=3)

    stale = producer.send(0, epoch=2)
    also_stale = producer.send(1, epoch=0)

    assert stale.error_code == also_stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(client, topic) == [b"0"]


def test_producers_and_partitions_count_by_themselves(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    one, two = Producer(client, topic), Producer(client, topic)
    assert one.offset(0) == 0
    assert two.offset(0) == 1
    assert one.offset(1) == 2

    other = produce(client, topic, one.batch(0), partition=1)

    assert (other.error_code, other.base_offset) == (ErrorCode.NONE, 0)


def test_pipelined_batches_keep_their_sequence(client: RawClient, topic: Topic, producer: Producer) -> None:
    for sequence in range(20):
        client.send(PRODUCE, 13, produce_request(topic, producer.batch(sequence), version=13))

    answers = [client.receive() for _ in range(20)]

    assert all(isinstance(answer, ProduceResponse) for answer in answers)
    offsets = [only_partition(a).base_offset for a in answers if isinstance(a, ProduceResponse)]
    assert offsets == list(range(20))


def test_a_batch_behind_one_that_was_refused_before_an_election_waits_for_it() -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER makes librdkafka send again, in a new epoch, what brokers have already."""
    with cluster(3) as running:
        create(running, "t")
        first = running.wait_for_leader("t")
        with RawClient(running.address(first)) as client:
            topic = Topic("t", TopicId(describe_topic(client, "t").topic_id))
            producer = Producer(client, topic)
            fresh = Producer(client, topic)
            producer.offset(0)
        for follower in {*running.ids} - {first}:
            with RawClient(running.address(follower)) as client:
                for id_, sequence in ((producer.id, 1), (fresh.id, 0)):
                    refused = Producer(client, topic, id_).send(sequence)
                    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        running.stop(first)
        leader = running.wait_for_leader("t", other_than=first)
        with RawClient(running.address(leader)) as client:
            producer, fresh = Producer(client, topic, producer.id), Producer(client, topic, fresh.id)
            assert producer.send(2).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert fresh.send(1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert [producer.offset(1), producer.offset(2)] == [1, 2]
            assert [fresh.offset(0), fresh.offset(1)] == [3, 4]


def test_a_batch_waits_for_the_retry_of_one_refused_for_an_unknown_topic(client: RawClient) -> None:
    """A client may hear of a topic before its leader does."""
    early = Topic(new_name(), TopicId(b"\1" * 16))
    first, second = Producer(client, early), Producer(client, early)
    assert first.send(0, version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    topic = create_topic(client, early.name)

    assert Producer(client, topic, first.id).send(1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [Producer(client, topic, first.id).offset(sequence) for sequence in (0, 1)] == [0, 1]
    assert Producer(client, topic, second.id).offset(0) == 2


@contextmanager
def running(data: Path) -> Iterator[RawClient]:
    with broker(data=data) as on_disk, RawClient(on_disk.bootstrap) as client:
        yield client


def test_duplicates_gaps_and_epochs_are_known_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as client:
        topic = create_topic(client)
        producer = Producer(client, topic)
        for sequence in range(3):
            producer.offset(sequence, epoch=1)

    with running(tmp_path) as client:
        producer = Producer(client, topic, producer.id)
        assert producer.offset(1, epoch=1) == 1
        assert producer.offset(2, epoch=1) == 2
        assert producer.send(4, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.send(3, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.offset(3, epoch=1) == 3
        assert values(client, topic) == [b"0", b"1", b"2", b"3"]


def test_a_producer_silent_for_too_long_is_forgotten() -> None:
    settings = {"producer.id.expiration.ms": "60000", "producer.id.expiration.check.interval.ms": "10"}
    with broker(config=settings) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        old, young = Producer(client, topic), Producer(client, topic)
        long_ago = batch_of(
            [record(b"old", timestamp=now_ms() - 61_000)],
            producer_id=old.id,
            producer_epoch=0,
            base_sequence=0,
        )
        assert produce(client, topic, long_ago).error_code == ErrorCode.NONE
        young.offset(0)

        until(lambda: {p.producer_id for p in producers(client, topic)} == {young.id})

        assert old.offset(7) == 2
        assert young.send(7).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
