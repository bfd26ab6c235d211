"""Idempotent producers: sequences, duplicates, epochs, and how long all that is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import PRODUCE, PartitionProduceResponse, ProduceResponse
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    every_version,
    fetch,
    new_producer_id,
    now_ms,
    only_partition,
    produce,
    produce_request,
    read_all,
    record,
    until,
)

LAST_SEQUENCE = 0x7FFFFFFF


class Producer:
    """Sends batches of single records, with whatever sequence and epoch it is told."""

    def __init__(self, client: RawClient, topic: Topic, producer_id: int | None = None) -> None:
        self._client = client
        self._topic = topic
        self.id = new_producer_id(client) if producer_id is None else producer_id

    def batch(self, sequence: int, epoch: int = 0, count: int = 1) -> bytes:
        values = [b"%d" % ((sequence + i) & LAST_SEQUENCE) for i in range(count)]
        return batch_of(values, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)

    def send(
        self, sequence: int, epoch: int = 0, count: int = 1, version: int = PRODUCE.max_version
    ) -> PartitionProduceResponse:
        return produce(self._client, self._topic, self.batch(sequence, epoch, count), version=version)

    def offset(self, sequence: int, epoch: int = 0, count: int = 1) -> int:
        answer = self.send(sequence, epoch, count)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return answer.base_offset


@pytest.fixture
def producer(client: RawClient, topic: Topic) -> Producer:
    return Producer(client, topic)


def values(client: RawClient, topic: Topic) -> list[bytes | None]:
    return [r.value for r in read_all(client, topic)]


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


# -- memory across restarts


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


def test_no_producer_id_is_handed_out_twice_even_after_a_restart(tmp_path: Path) -> None:
    handed_out = set()
    for _ in range(3):
        with running(tmp_path) as client:
            handed_out |= {new_producer_id(client) for _ in range(5)}

    assert len(handed_out) == 15


# -- forgetting


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


# -- InitProducerId


INIT_VERSIONS = pytest.mark.parametrize("version", every_version(INIT_PRODUCER_ID))


@INIT_VERSIONS
def test_every_producer_gets_an_id_of_its_own(client: RawClient, version: int) -> None:
    answers = [
        client.call(INIT_PRODUCER_ID, version, InitProducerIdRequest(transaction_timeout_ms=1000))
        for _ in range(3)
    ]

    assert {a.error_code for a in answers} == {ErrorCode.NONE}
    assert {a.producer_epoch for a in answers} == {0}
    assert len({a.producer_id for a in answers}) == 3
    assert min(a.producer_id for a in answers) >= 0


def test_ids_go_on_beyond_a_block(client: RawClient) -> None:
    assert len({new_producer_id(client) for _ in range(1100)}) == 1100


@INIT_VERSIONS
def test_an_empty_transactional_id_is_an_invalid_request(client: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)

    answer = client.call(INIT_PRODUCER_ID, version, request)

    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_an_id_and_its_epoch_belong_together(
    client: RawClient, version: int, producer_id: int, epoch: int
) -> None:
    request = InitProducerIdRequest(
        transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )

    assert client.call(INIT_PRODUCER_ID, version, request).error_code == ErrorCode.INVALID_REQUEST


# -- DescribeProducers


def describe(client: RawClient, name: str, *indexes: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(indexes))])
    (topic,) = client.call(DESCRIBE_PRODUCERS, 0, request).topics
    assert topic.name == name
    return topic.partitions


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_producers_of_nothing(client: RawClient, name: str, code: ErrorCode) -> None:
    found = describe(client, name, 0, 3)

    assert [(p.partition_index, p.error_code) for p in found] == [(0, code), (3, code)]


def producers(client: RawClient, topic: Topic) -> list[ProducerState]:
    (partition,) = describe(client, topic.name, 0)
    assert partition.error_code == ErrorCode.NONE
    return partition.active_producers


def test_producers_are_described(client: RawClient, topic: Topic, producer: Producer) -> None:
    at = now_ms() - 100
    produce(
        client,
        topic,
        batch_of(
            [record(b"0", timestamp=at), record(b"1", timestamp=at)],
            producer_id=producer.id,
            producer_epoch=4,
            base_sequence=0,
        ),
    )

    (state,) = producers(client, topic)

    assert state == ProducerState(
        producer_id=producer.id,
        producer_epoch=4,
        last_sequence=1,
        last_timestamp=at,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=-1,
    )


def test_plain_producers_leave_no_trace(client: RawClient, topic: Topic) -> None:
    produce(client, topic, batch_of([b"x"]))

    assert producers(client, topic) == []


def test_producers_of_unknown_partitions(client: RawClient, topic: Topic) -> None:
    (beyond,) = describe(client, topic.name, 5)
    (missing,) = describe(client, "no-such-topic", 0)

    assert beyond.error_code == missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@penstock_only
def test_no_transaction_can_be_opened_without_its_coordinator(
    client: RawClient, topic: Topic, producer: Producer
) -> None:
    """A transaction that no coordinator ends would stop readers of committed records."""
    batch = batch_of([b"x"], producer_id=producer.id, producer_epoch=0, base_sequence=0, transactional=True)

    nameless = produce(client, topic, batch)
    request = produce_request(topic, batch, version=12)
    request.transactional_id = "no-such-id"
    named = only_partition(client.call(PRODUCE, 12, request))

    assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # No coordinator exists yet, or it does not know the id: that depends on the tests before.
    assert named.error_code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert fetch(client, topic, 0, isolation_level=1).last_stable_offset == 0
    assert fetch(client, topic, 0).high_watermark == 0
