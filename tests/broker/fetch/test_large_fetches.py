"""Answers that go from the disk to the socket without being read, whole and in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import broker
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    create_topic,
    delete_topic,
    fetch_request,
    read_all,
    values_in,
    wanted,
)

PARTITIONS = 4
SIZE = 600_000


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    """Half a megabyte and something small in each partition."""
    made = create_topic(client, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        append(client, made, large(partition), partition=partition)
        append(client, made, b"small", partition=partition)
    return made


def large(partition: int) -> bytes:
    """Bytes of which each differs from its neighbours, so that a misplaced one is seen."""
    digest = hashlib.sha256(b"%d" % partition).digest()
    return (digest * (SIZE // len(digest) + 1))[:SIZE]


def read_answer(client: RawClient) -> None:
    response = client.receive()
    assert isinstance(response, FetchResponse)
    (found,) = [t.partitions for t in response.responses]
    assert [values_in(p) for p in found] == [[large(p), b"small"] for p in range(PARTITIONS)]


def send_fetch(client: RawClient, topic: Topic, version: int = FETCH.max_version) -> None:
    everything = [(topic, [wanted(0, partition) for partition in range(PARTITIONS)])]
    client.send(FETCH, version, fetch_request(everything, version=version))


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_several_partitions_in_one_answer(client: RawClient, topic: Topic, version: int) -> None:
    send_fetch(client, topic, version)

    read_answer(client)


def test_pipelined_answers_keep_their_order(client: RawClient, topic: Topic) -> None:
    for _ in range(6):
        send_fetch(client, topic)
        client.send(METADATA, 12, MetadataRequest(topics=[]))

    for _ in range(6):
        read_answer(client)
        client.receive()


def test_a_client_that_does_not_read_delays_no_other_client(client: RawClient, topic: Topic) -> None:
    with client.another() as lazy:
        for _ in range(20):
            send_fetch(lazy, topic)
        for _ in range(3):
            send_fetch(client, topic)
            read_answer(client)

        for _ in range(20):
            read_answer(lazy)


def test_a_topic_deleted_while_it_is_being_sent_is_sent_to_the_end(client: RawClient, topic: Topic) -> None:
    with client.another() as lazy:
        send_fetch(lazy, topic)
        # The answer is under way once a later request of another client has been answered.
        client.call(METADATA, 12, MetadataRequest(topics=[]))
        delete_topic(client, topic)

        read_answer(lazy)


def test_segments_follow_one_another(client: RawClient) -> None:
    topic = create_topic(client, configs={"segment.bytes": "1048576"})
    values = [large(i)[: 300_000 + i] for i in range(12)]
    for value in values:
        append(client, topic, value)

    assert [r.value for r in read_all(client, topic)] == values
