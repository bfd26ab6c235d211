"""How long a fetch waits, and for what."""

from __future__ import annotations

import select

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.fetch import FETCH, FetchResponse, PartitionData
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    create_topic,
    delete_topic,
    edge_versions,
    fetch,
    fetch_request,
    values_in,
    wanted,
)

LONG_MS = 30_000


def has_answer(client: RawClient) -> bool:
    """Whether an answer is there, given that the broker had time for another request since."""
    with client.another() as other:
        other.call(METADATA, 1, MetadataRequest(topics=[]))
    return bool(select.select([client.socket], [], [], 0)[0])


@pytest.mark.parametrize("version", edge_versions(FETCH))
def test_a_fetch_waits_for_the_first_record(client: RawClient, topic: Topic, version: int) -> None:
    client.send(FETCH, version, fetch_request([(topic, [wanted(0)])], version=version, max_wait_ms=LONG_MS))
    assert not has_answer(client)

    with client.another() as other:
        append(other, topic, b"0")

    assert values_in(_received(client)) == [b"0"]


def test_a_fetch_waits_until_min_bytes_have_come(client: RawClient, topic: Topic) -> None:
    request = fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=LONG_MS, min_bytes=2500)
    client.send(FETCH, 18, request)
    with client.another() as other:
        append(other, topic, b"x" * 1000)
        append(other, topic, b"y" * 1000)
        assert not has_answer(client)
        append(other, topic, b"z" * 1000)

    assert len(values_in(_received(client))) == 3


def test_min_bytes_count_over_all_partitions(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    both = [wanted(0, 0), wanted(0, 1)]
    client.send(FETCH, 18, fetch_request([(topic, both)], version=18, max_wait_ms=LONG_MS, min_bytes=1500))
    with client.another() as other:
        append(other, topic, b"x" * 1000, partition=0)
        assert not has_answer(client)
        append(other, topic, b"y" * 1000, partition=1)

    (answers,) = [t.partitions for t in _response(client).responses]
    assert [len(values_in(answer)) for answer in answers] == [1, 1]


def test_a_fetch_returns_the_available_records_at_its_timeout(client: RawClient, topic: Topic) -> None:
    append(client, topic, b"0")

    answer = fetch(client, topic, 0, max_wait_ms=50, min_bytes=1 << 20)
    empty = fetch(client, topic, 1, max_wait_ms=50)

    assert values_in(answer) == [b"0"]
    assert (values_in(empty), empty.error_code) == ([], ErrorCode.NONE)


def test_an_error_in_one_partition_ends_the_wait_at_once(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    request = fetch_request([(topic, [wanted(0, 0), wanted(7, 1)])], version=18, max_wait_ms=LONG_MS)

    (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]

    codes = {answer.partition_index: answer.error_code for answer in answers}
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.OFFSET_OUT_OF_RANGE}


def test_a_partition_that_is_not_here_does_not_end_the_wait_for_others(
    client: RawClient, topic: Topic
) -> None:
    request = fetch_request([(topic, [wanted(0, 0), wanted(0, 9)])], version=18, max_wait_ms=LONG_MS)
    client.send(FETCH, 18, request)
    assert not has_answer(client)

    with client.another() as other:
        append(other, topic, b"0")

    (answers,) = [t.partitions for t in _response(client).responses]
    codes = {answer.partition_index: answer.error_code for answer in answers}
    assert codes == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_partitions_of_which_none_is_here_are_answered_at_once(client: RawClient, topic: Topic) -> None:
    answer = fetch(client, topic, 0, partition=9, max_wait_ms=LONG_MS)

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_without_min_bytes_does_not_wait(client: RawClient, topic: Topic) -> None:
    answer = fetch(client, topic, 0, max_wait_ms=LONG_MS, min_bytes=0)

    assert values_in(answer) == []


def test_a_fetch_of_nothing_is_answered_at_once(client: RawClient) -> None:
    response = client.call(FETCH, 18, fetch_request([], version=18, max_wait_ms=LONG_MS))

    assert (response.error_code, response.responses) == (ErrorCode.NONE, [])


def test_deleting_the_topic_ends_the_wait(client: RawClient) -> None:
    topic = create_topic(client)
    client.send(FETCH, 18, fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=LONG_MS))
    with client.another() as other:
        delete_topic(other, topic)

    assert _received(client).error_code in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def test_requests_behind_a_waiting_fetch_are_answered_in_order(client: RawClient, topic: Topic) -> None:
    client.send(FETCH, 18, fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=LONG_MS))
    client.send(METADATA, 12, MetadataRequest(topics=[]))
    with client.another() as other:
        append(other, topic, b"0")

    assert values_in(_received(client)) == [b"0"]
    client.receive()


def test_a_reader_that_leaves_while_it_waits_is_forgotten(client: RawClient, topic: Topic) -> None:
    with client.another() as leaving:
        request = fetch_request([(topic, [wanted(0)])], version=18, max_wait_ms=LONG_MS)
        leaving.send(FETCH, 18, request)

    append(client, topic, b"0")
    assert values_in(fetch(client, topic, 0)) == [b"0"]


def _response(client: RawClient) -> FetchResponse:
    response = client.receive()
    assert isinstance(response, FetchResponse)
    return response


def _received(client: RawClient) -> PartitionData:
    ((answer,),) = [t.partitions for t in _response(client).responses]
    return answer
