"""The bytes of a client fetch: limits of partitions and of the request."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.fetch import FETCH
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    create_topic,
    edge_versions,
    fetch,
    fetch_request,
    values_in,
    wanted,
)


@pytest.mark.parametrize("version", edge_versions(FETCH))
def test_at_least_one_batch_comes_however_small_the_limits(
    client: RawClient, topic: Topic, version: int
) -> None:
    append(client, topic, b"x" * 10_000)
    append(client, topic, b"y")

    small_partition = fetch(client, topic, 0, version=version, partition_max_bytes=1)
    small_request = fetch(client, topic, 0, version=version, max_bytes=1)
    nothing_requested = fetch(client, topic, 0, version=version, partition_max_bytes=0)

    for answer in (small_partition, small_request, nothing_requested):
        assert values_in(answer) == [b"x" * 10_000]


def test_max_bytes_of_a_partition_bounds_its_records(client: RawClient, topic: Topic) -> None:
    for _ in range(10):
        append(client, topic, b"x" * 1000)

    answer = fetch(client, topic, 0, partition_max_bytes=3500)

    assert len(values_in(answer)) == 3
    assert answer.records is not None
    assert len(answer.records) <= 3500


def test_max_bytes_of_a_request_bounds_all_its_partitions(client: RawClient) -> None:
    topic = create_topic(client, partitions=3)
    for partition in range(3):
        append(client, topic, b"x" * 1000, partition=partition)
    request = fetch_request([(topic, [wanted(0, p) for p in range(3)])], version=18, max_bytes=1100)

    (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]

    counts = sorted(len(values_in(answer)) for answer in answers)
    assert counts == [0, 0, 1]
    assert [a.high_watermark for a in answers] == [1, 1, 1]
    assert [a.error_code for a in answers] == [ErrorCode.NONE] * 3


def test_an_oversized_first_batch_leaves_nothing_for_the_other_partitions(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    append(client, topic, b"x" * 5000, partition=0)
    append(client, topic, b"y" * 5000, partition=1)
    request = fetch_request([(topic, [wanted(0, 0), wanted(0, 1)])], version=18, max_bytes=100)

    (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]

    assert sorted(len(values_in(answer)) for answer in answers) == [0, 1]


@pytest.mark.parametrize("version", edge_versions(FETCH))
@pytest.mark.parametrize("limits", [(1000, 50 << 20), (1 << 20, 5000), (1 << 20, 3500)])
@pytest.mark.parametrize("size", [500, 3000])
def test_a_later_partition_whose_first_batch_is_too_large_brings_nothing(
    client: RawClient, version: int, limits: tuple[int, int], size: int
) -> None:
    """A part of a batch makes Java's consumer and kafka-python give up (KIP-74).

    The request is repeated on one connection, as clients repeat fetches of the same partitions.
    """
    topic = create_topic(client, partitions=4)
    for partition in (1, 2, 3):
        for _ in range(2):
            append(client, topic, b"x" * 3000, partition=partition)
        # Smaller ones are at hand where they were appended last.
        append(client, topic, b"y" * size, partition=partition)
    partition_max_bytes, max_bytes = limits
    for offset in (0, 2):
        named = [wanted(0, 0, partition_max_bytes)]
        named += [wanted(offset, p, partition_max_bytes) for p in (1, 2, 3)]
        request = fetch_request([(topic, named)], version=version, max_bytes=max_bytes)
        fitting = min(partition_max_bytes, max_bytes) // 3000 or 1
        first = fitting if not offset else 1
        for _ in range(4):
            (answers,) = [t.partitions for t in client.call(FETCH, version, request).responses]
            assert [a.error_code for a in answers] == [ErrorCode.NONE] * 4
            assert len(values_in(answers[1])) == first
            for answer in answers[2:]:
                if offset and size == 500:
                    assert values_in(answer) == [b"y" * size]
                else:
                    assert not answer.records or values_in(answer)


def test_a_fetch_for_more_than_fits_does_not_wait(client: RawClient) -> None:
    """What is left of later partitions counts: there is no reason to wait for more."""
    topic = create_topic(client, partitions=3)
    for partition in range(3):
        append(client, topic, b"x" * 3000, partition=partition)
    named = [wanted(0, p) for p in range(3)]
    request = fetch_request(
        [(topic, named)], version=18, max_bytes=4000, min_bytes=6000, max_wait_ms=3_600_000
    )

    for _ in range(4):
        (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]
        assert [len(values_in(answer)) for answer in answers] == [1, 0, 0]


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, [])], ids=["any", "committed"])
def test_a_partition_at_its_end_is_answered_along_with_one_that_has_more(
    client: RawClient, isolation_level: int, aborted: list[object] | None
) -> None:
    """Were it alone the fetch would wait, without an answer being made for it."""
    topic = create_topic(client, partitions=2)
    for partition in range(2):
        append(client, topic, b"x", partition=partition)
    both = [(topic, [wanted(1, 0), wanted(0, 1)])]
    request = fetch_request(both, version=18, max_wait_ms=5000, isolation_level=isolation_level)

    (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]

    assert [(a.partition_index, a.high_watermark, len(values_in(a))) for a in answers] == [
        (0, 1, 0),
        (1, 1, 1),
    ]
    assert [a.aborted_transactions for a in answers] == [aborted] * 2


def test_out_of_range_is_noticed_even_when_no_bytes_are_left(client: RawClient) -> None:
    topic = create_topic(client, partitions=2)
    append(client, topic, b"x" * 5000, partition=0)
    request = fetch_request([(topic, [wanted(0, 0), wanted(7, 1)])], version=18, max_bytes=100)

    (answers,) = [t.partitions for t in client.call(FETCH, 18, request).responses]

    codes = {answer.partition_index: answer.error_code for answer in answers}
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.OFFSET_OUT_OF_RANGE}


def test_the_broker_bounds_the_bytes_of_a_response() -> None:
    with broker(config={"fetch.max.bytes": "2048"}) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client)
        for _ in range(10):
            append(client, topic, b"x" * 1000)

        answer = fetch(client, topic, 0)

        assert len(values_in(answer)) == 1
        assert answer.records is not None
        assert len(answer.records) <= 2048
