"""What acks promise, and the order of answers."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.produce import (
    PRODUCE,
    ProduceRequest,
    ProduceResponse,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    edge_versions,
    every_version,
    fetch,
    produce,
    produce_request,
    read_all,
)

ALL = pytest.mark.parametrize("version", every_version(PRODUCE))
EDGES = pytest.mark.parametrize("version", [*edge_versions(PRODUCE), 7, 12])


@ALL
@pytest.mark.parametrize("acks", [1, -1])
def test_acks_from_the_leader_and_from_all(client: RawClient, topic: Topic, version: int, acks: int) -> None:
    answer = produce(client, topic, batch_of([b"x"]), acks=acks, version=version)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert fetch(client, topic, 0).high_watermark == 1


@EDGES
def test_without_acks_nothing_is_answered_and_the_records_are_there(
    client: RawClient, topic: Topic, version: int
) -> None:
    request = produce_request(topic, batch_of([b"silent"]), acks=0, version=version)
    client.send(PRODUCE, version, request, answered=False)

    client.call(METADATA, 12, MetadataRequest(topics=[]))

    assert [r.value for r in read_all(client, topic)] == [b"silent"]


@EDGES
@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(client: RawClient, topic: Topic, version: int, acks: int) -> None:
    answer = produce(client, topic, batch_of([b"x"]), acks=acks, version=version)

    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert fetch(client, topic, 0).high_watermark == 0


@EDGES
def test_an_error_without_acks_closes_the_connection(client: RawClient, topic: Topic, version: int) -> None:
    with client.another() as silent:
        batch = bytearray(batch_of([b"x"]))
        batch[-1] ^= 1
        request = produce_request(topic, bytes(batch), acks=0, version=version)
        silent.send(PRODUCE, version, request, answered=False)

        assert silent.is_closed()


def test_pipelined_requests_are_appended_and_answered_in_order(client: RawClient, topic: Topic) -> None:
    for i in range(50):
        request = produce_request(topic, batch_of([b"%d" % i]), acks=-1 if i % 2 else 1, version=13)
        client.send(PRODUCE, 13, request)

    offsets = []
    for _ in range(50):
        response = client.receive()
        assert isinstance(response, ProduceResponse)
        offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(50))
    assert [r.value for r in read_all(client, topic)] == [b"%d" % i for i in range(50)]


def test_a_request_without_partitions_is_answered(client: RawClient) -> None:
    response = client.call(PRODUCE, 13, ProduceRequest(acks=-1, timeout_ms=1000))

    assert response.responses == []


def test_more_replicas_than_there_are_cannot_be_waited_for(client: RawClient) -> None:
    """Like Kafka, `min.insync.replicas` requires no more replicas than the partition has."""
    topic = create_topic(client, configs={"min.insync.replicas": "2"})

    assert produce(client, topic, batch_of([b"x"]), acks=-1).error_code == ErrorCode.NONE


@EDGES
def test_a_partition_that_does_not_exist_is_refused_for_that(
    client: RawClient, topic: Topic, version: int
) -> None:
    request = produce_request(topic, batch_of([b"x"]), acks=2, version=version)
    request.topic_data[0].partition_data[0].index = 99

    answer = client.call(PRODUCE, version, request).responses[0].partition_responses[0]

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
