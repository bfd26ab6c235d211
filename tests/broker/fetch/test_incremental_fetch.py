"""Incremental fetch sessions (KIP-227), over the wire and, where time matters, on the table itself."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    create_topic,
    delete_topic,
    fetch_request,
    until,
    values_in,
)
from tests.broker.sessions import SessionClient

#: the first version with sessions, by name; the first by id; the newest
VERSIONS = pytest.mark.parametrize("version", [7, 12, 13, 18])


@pytest.fixture
def two(client: RawClient) -> Topic:
    """A topic of two partitions."""
    return create_topic(client, partitions=2)


@VERSIONS
def test_a_session_starts_with_a_full_answer(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)

    answers = session.fetch((two, 0, 0), (two, 1, 0))

    assert session.id > 0
    assert set(answers) == {0, 1}


@VERSIONS
def test_an_incremental_response_names_only_changed_partitions(
    client: RawClient, two: Topic, version: int
) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0), (two, 1, 0))
    assert session.fetch() == {}

    append(client, two, b"news", partition=1)

    answers = session.fetch()
    assert set(answers) == {1}
    assert values_in(answers[1]) == [b"news"]


@VERSIONS
def test_records_are_repeated_until_the_offset_moves(client: RawClient, two: Topic, version: int) -> None:
    append(client, two, b"0", partition=0)
    session = SessionClient(client, version)
    session.fetch((two, 0, 0), (two, 1, 0))

    assert values_in(session.fetch()[0]) == [b"0"]
    assert session.fetch((two, 0, 1)) == {}
    append(client, two, b"1", partition=0)
    assert values_in(session.fetch()[0]) == [b"1"]


@VERSIONS
def test_partitions_join_and_leave_a_session(client: RawClient, two: Topic, version: int) -> None:
    append(client, two, b"0", partition=0)
    append(client, two, b"1", partition=1)
    session = SessionClient(client, version)
    assert set(session.fetch((two, 0, 1))) == {0}

    assert set(session.fetch((two, 1, 0))) == {1}

    assert session.fetch(forget=(two, 1)) == {}
    append(client, two, b"2", partition=1)
    assert session.fetch() == {}
    append(client, two, b"3", partition=0)
    assert set(session.fetch()) == {0}


@VERSIONS
def test_a_waiting_session_is_woken_by_its_partitions(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0), (two, 1, 0))
    client.send(
        FETCH,
        version,
        fetch_request([], version=version, session_id=session.id, session_epoch=1, max_wait_ms=30_000),
    )
    with client.another() as other:
        append(other, two, b"news", partition=1)

    response = client.receive()

    assert isinstance(response, FetchResponse)
    ((answer,),) = [t.partitions for t in response.responses]
    assert values_in(answer) == [b"news"]


@VERSIONS
def test_a_wrong_epoch_is_refused(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0))
    session.epoch = 5

    assert session.call().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    session.epoch = 1
    assert session.fetch() == {}


@VERSIONS
def test_an_epoch_counts_only_once(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0))
    session.fetch()
    session.epoch -= 1

    assert session.call().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@VERSIONS
def test_an_unknown_session_is_not_found(client: RawClient, version: int) -> None:
    session = SessionClient(client, version)
    session.id, session.epoch = 123_456_789, 1

    response = session.call()

    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@pytest.mark.parametrize(("before", "after"), [(12, 13), (13, 12), (7, 18), (18, 7)])
def test_a_session_speaks_of_topics_by_name_or_by_id_not_both(
    client: RawClient, two: Topic, before: int, after: int
) -> None:
    session = SessionClient(client, before)
    session.fetch((two, 0, 0))
    session.version = after

    assert session.call().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.epoch += 1
    assert session.call().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@VERSIONS
def test_the_final_epoch_ends_the_session_and_still_reads(
    client: RawClient, two: Topic, version: int
) -> None:
    append(client, two, b"0", partition=0)
    session = SessionClient(client, version)
    session.fetch((two, 0, 0))
    session.epoch = -1

    response = session.call((two, 0, 0))

    assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)
    assert values_in(response.responses[0].partitions[0]) == [b"0"]
    session.epoch = 1
    assert session.call().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@VERSIONS
def test_epoch_zero_replaces_the_session(client: RawClient, two: Topic, version: int) -> None:
    old = SessionClient(client, version)
    old.fetch((two, 0, 0))
    new = SessionClient(client, version)
    new_response = client.call(
        FETCH,
        version,
        fetch_request(
            [(two, [FetchPartition(partition=1, partition_max_bytes=100)])],
            version=version,
            session_id=old.id,
            session_epoch=0,
        ),
    )
    new.id, new.epoch = new_response.session_id, 1

    assert new.id not in (0, old.id)
    assert old.call().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert new.fetch() == {}


@VERSIONS
def test_an_error_is_repeated_until_it_is_gone(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0), (two, 1, 9))

    assert session.fetch()[1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.fetch((two, 1, 0))[1].error_code == ErrorCode.NONE
    assert session.fetch() == {}


@pytest.mark.parametrize("version", [13, 18])
def test_a_session_reports_that_a_topic_id_is_gone(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    session = SessionClient(client, version)
    session.fetch((topic, 0, 0))
    delete_topic(client, topic)

    answers: dict[int, PartitionData] = {}
    # Apache Kafka needs a moment to forget a topic.
    until(lambda: bool(answers.update(session.fetch()) or answers))
    assert answers[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_session_without_a_client_id_in_versions_without_sessions(client: RawClient, two: Topic) -> None:
    response = client.call(FETCH, 6, fetch_request([(two, [FetchPartition(partition=0)])], version=6))

    assert (response.session_id, response.error_code) == (0, ErrorCode.NONE)


def test_a_partition_that_got_bytes_goes_behind_the_others(client: RawClient, two: Topic) -> None:
    """Within small limits every partition gets its turn."""
    for partition in (0, 1):
        append(client, two, b"x" * 1000, partition=partition)
    full = fetch_request(
        [(two, [FetchPartition(partition=p, partition_max_bytes=2000) for p in (0, 1)])],
        version=18,
        session_epoch=0,
        max_bytes=500,
    )
    session_id = client.call(FETCH, 18, full).session_id
    first, second = (
        client.call(
            FETCH,
            18,
            fetch_request([], version=18, session_id=session_id, session_epoch=epoch, max_bytes=500),
        )
        for epoch in (1, 2)
    )

    assert _served(first) | _served(second) == {0, 1}
    assert len(_served(first)) == len(_served(second)) == 1


def test_a_full_request_without_partitions_starts_a_session_and_an_empty_one_ends(
    client: RawClient, two: Topic
) -> None:
    started = client.call(FETCH, 18, fetch_request([], version=18, session_epoch=0))
    assert started.session_id != 0
    request = fetch_request(
        [(two, [FetchPartition(partition=0)])], version=18, session_id=started.session_id, session_epoch=1
    )
    assert client.call(FETCH, 18, request).session_id == started.session_id
    request = fetch_request([], version=18, session_id=started.session_id, session_epoch=2)
    request.forgotten_topics_data = [ForgottenTopic(topic_id=two.id, partitions=[0])]

    ended = client.call(FETCH, 18, request)

    assert (ended.error_code, ended.session_id, ended.responses) == (ErrorCode.NONE, 0, [])
    request = fetch_request([], version=18, session_id=started.session_id, session_epoch=3)
    assert client.call(FETCH, 18, request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("limits", [(1000, 50 << 20), (1 << 20, 4000)])
def test_every_partition_of_a_session_has_its_turn(client: RawClient, limits: tuple[int, int]) -> None:
    """A partition that got nothing, because its first batch did not fit, comes before those that did."""
    topic = create_topic(client, partitions=3)
    partition_max_bytes, max_bytes = limits
    for _ in range(4):
        for partition in range(3):
            append(client, topic, b"x" * 3000, partition=partition)
    offsets = dict.fromkeys(range(3), 0)
    session_id, served = 0, []
    changed: list[int] = [0, 1, 2]
    for epoch in range(10):
        named = [
            FetchPartition(partition=p, fetch_offset=offsets[p], partition_max_bytes=partition_max_bytes)
            for p in changed
        ]
        request = fetch_request(
            [(topic, named)],
            version=18,
            session_id=session_id,
            session_epoch=epoch,
            max_bytes=max_bytes,
        )
        response = client.call(FETCH, 18, request)
        session_id = response.session_id
        changed = sorted(_served(response))
        served += changed
        for index in changed:
            offsets[index] += 1

    # Like Kafka, the first answer leaves the order as it is.
    assert served == [0, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def _served(response: FetchResponse) -> set[int]:
    return {p.partition_index for t in response.responses for p in t.partitions if p.records}
