"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.storage.producer_state import ProducerState as WrittenState
from penstock.testing import broker
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import PRODUCE
from tests.broker.conftest import penstock_only
from tests.broker.idempotent_producers import Producer, describe, producers
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
    record,
)
from tests.broker.stalls import assert_brief


@pytest.fixture
def producer(client: RawClient, topic: Topic) -> Producer:
    return Producer(client, topic)


@contextmanager
def running(data: Path) -> Iterator[RawClient]:
    with broker(data=data) as on_disk, RawClient(on_disk.bootstrap) as client:
        yield client


def test_no_producer_id_is_handed_out_twice_even_after_a_restart(tmp_path: Path) -> None:
    handed_out = set()
    for _ in range(3):
        with running(tmp_path) as client:
            handed_out |= {new_producer_id(client) for _ in range(5)}

    assert len(handed_out) == 15


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


def test_a_partition_of_many_producers_is_described_in_slices() -> None:
    """Each idempotent producer that has written in the last day is one: 100,000 of them took 60 ms."""
    number = 100_000
    with broker() as started, RawClient(started.bootstrap) as client:
        topic = create_topic(client).name
        partition = started.broker.stages.storage.partitions.find(topic, 0)
        assert isinstance(partition, Partition)
        partition.log.producers.states |= {i: WrittenState(i, epoch=0) for i in range(number)}
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])

        def described() -> None:
            (found,) = client.call(DESCRIBE_PRODUCERS, 0, request).topics[0].partitions
            assert [each.producer_id for each in found.active_producers] == list(range(number))

        assert_brief(started, described)
