"""Incremental fetch sessions (KIP-227), over the wire and, where time matters, on the table itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.broker.fetch_sessions import FetchSessions
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.testing import broker
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
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
    values_in,
)

#: the first version with sessions, by name; the first by id; the newest
VERSIONS = pytest.mark.parametrize("version", [7, 12, 13, 18])


class SessionClient:
    """Goes through a session's epochs as a client does."""

    def __init__(self, client: RawClient, version: int) -> None:
        self._client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(
        self, *wanted: tuple[Topic, int, int], forget: tuple[Topic, int] | None = None, max_wait_ms: int = 0
    ) -> dict[int, PartitionData]:
        """One request of (topic, partition, offset); the answered partitions by index."""
        response = self.ask(*wanted, forget=forget, max_wait_ms=max_wait_ms)
        assert response.error_code == ErrorCode.NONE
        assert self.id in (0, response.session_id)
        self.id = response.session_id
        self.epoch += 1
        return {p.partition_index: p for topic in response.responses for p in topic.partitions}

    def ask(
        self, *wanted: tuple[Topic, int, int], forget: tuple[Topic, int] | None = None, max_wait_ms: int = 0
    ) -> FetchResponse:
        topics = [
            (topic, [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)])
            for topic, index, offset in wanted
        ]
        request = fetch_request(
            topics,
            version=self.version,
            session_id=self.id,
            session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
        )
        if forget is not None:
            topic, index = forget
            request.forgotten_topics_data = [
                ForgottenTopic(topic=topic.name, topic_id=topic.id, partitions=[index])
            ]
        return self._client.ask(FETCH, self.version, request)


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
def test_an_incremental_answer_names_only_what_changed(client: RawClient, two: Topic, version: int) -> None:
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

    assert session.ask().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    session.epoch = 1
    assert session.fetch() == {}


@VERSIONS
def test_an_epoch_counts_only_once(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0))
    session.fetch()
    session.epoch -= 1

    assert session.ask().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@VERSIONS
def test_an_unknown_session_is_not_found(client: RawClient, version: int) -> None:
    session = SessionClient(client, version)
    session.id, session.epoch = 123_456_789, 1

    response = session.ask()

    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@pytest.mark.parametrize(("before", "after"), [(12, 13), (13, 12), (7, 18), (18, 7)])
def test_a_session_speaks_of_topics_by_name_or_by_id_not_both(
    client: RawClient, two: Topic, before: int, after: int
) -> None:
    session = SessionClient(client, before)
    session.fetch((two, 0, 0))
    session.version = after

    assert session.ask().error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@VERSIONS
def test_the_final_epoch_ends_the_session_and_still_reads(
    client: RawClient, two: Topic, version: int
) -> None:
    append(client, two, b"0", partition=0)
    session = SessionClient(client, version)
    session.fetch((two, 0, 0))
    session.epoch = -1

    response = session.ask((two, 0, 0))

    assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)
    assert values_in(response.responses[0].partitions[0]) == [b"0"]
    session.epoch = 1
    assert session.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@VERSIONS
def test_epoch_zero_replaces_the_session(client: RawClient, two: Topic, version: int) -> None:
    old = SessionClient(client, version)
    old.fetch((two, 0, 0))
    new = SessionClient(client, version)
    new_response = client.ask(
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
    assert old.ask().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert new.fetch() == {}


@VERSIONS
def test_an_error_is_repeated_until_it_is_gone(client: RawClient, two: Topic, version: int) -> None:
    session = SessionClient(client, version)
    session.fetch((two, 0, 0), (two, 1, 9))

    assert session.fetch()[1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.fetch((two, 1, 0))[1].error_code == ErrorCode.NONE
    assert session.fetch() == {}


@pytest.mark.parametrize("version", [13, 18])
def test_a_session_hears_that_a_topic_id_is_gone(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    session = SessionClient(client, version)
    session.fetch((topic, 0, 0))
    delete_topic(client, topic)

    # Apache Kafka needs a moment to forget a topic.
    while not (answers := session.fetch()):
        pass
    assert answers[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_session_without_a_client_id_in_versions_without_sessions(client: RawClient, two: Topic) -> None:
    response = client.ask(FETCH, 6, fetch_request([(two, [FetchPartition(partition=0)])], version=6))

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
    session_id = client.ask(FETCH, 18, full).session_id
    first, second = (
        client.ask(
            FETCH,
            18,
            fetch_request([], version=18, session_id=session_id, session_epoch=epoch, max_bytes=500),
        )
        for epoch in (1, 2)
    )

    assert _served(first) | _served(second) == {0, 1}
    assert len(_served(first)) == len(_served(second)) == 1


def _served(response: FetchResponse) -> set[int]:
    return {p.partition_index for t in response.responses for p in t.partitions if p.records}


# -- the table is full


@pytest.fixture
def small_table() -> Iterator[RawClient]:
    """A connection to a broker with room for one session."""
    with (
        broker(config={"max.incremental.fetch.session.cache.slots": "1"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        yield client


def test_whoever_gets_no_session_is_answered_in_full(small_table: RawClient) -> None:
    topic = create_topic(small_table)
    lucky = SessionClient(small_table, 18)
    lucky.fetch((topic, 0, 0))
    unlucky = SessionClient(small_table, 18)

    answers = unlucky.fetch((topic, 0, 0))

    assert (unlucky.id, set(answers)) == (0, {0})
    assert lucky.fetch() == {}


def test_no_slots_means_no_sessions() -> None:
    with (
        broker(config={"max.incremental.fetch.session.cache.slots": "0"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        session = SessionClient(client, 18)
        assert set(session.fetch((topic, 0, 0))) == {0}
        assert session.id == 0


class Table:
    """A table of sessions with a clock to turn."""

    def __init__(self, slots: int) -> None:
        self.now = 1000.0
        ids = count(1)
        self.sessions = FetchSessions(slots, 120.0, lambda: self.now, lambda: next(ids), most_partitions=10)

    def start(self, partitions: int = 1) -> int | None:
        session = self.sessions.start(FetchRequest(topics=_partitions("t", partitions)), False)
        return None if session is None else session.id

    def use(self, session_id: int, epoch: int, more: int = 0) -> None:
        request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=_partitions("more", more))
        self.sessions.resume(request, False)


def _partitions(topic: str, count: int) -> list[FetchTopic]:
    return [FetchTopic(topic=topic, partitions=[FetchPartition(partition=index) for index in range(count)])]


def test_a_session_idle_for_the_eviction_time_loses_its_slot() -> None:
    table = Table(slots=1)
    old = table.start()
    table.now += 119
    assert table.start() is None
    table.now += 2

    new = table.start()

    assert new not in (None, old)
    assert (len(table.sessions), table.sessions.evicted) == (1, 1)


def test_the_session_unused_for_longest_goes_first() -> None:
    table = Table(slots=2)
    first, second = table.start(), table.start()
    assert first is not None
    assert second is not None
    table.now += 200
    table.use(first, 1)

    table.start()

    table.use(first, 2)
    with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
        table.use(second, 1)


def test_a_larger_session_takes_over_from_a_smaller_one_that_had_its_time() -> None:
    table = Table(slots=1)
    small = table.start(partitions=1)
    assert small is not None
    table.now += 200
    table.use(small, 1)
    assert table.start(partitions=1) is None

    assert table.start(partitions=2) is not None
    assert table.sessions.partition_count() == 2


def test_sessions_that_would_name_too_many_partitions_are_not_kept() -> None:
    table = Table(slots=5)
    assert table.start(partitions=11) is None
    kept, growing = table.start(partitions=5), table.start(partitions=4)
    assert kept is not None
    assert growing is not None
    table.use(growing, 1, more=1)

    with pytest.raises(ApiError, match="FETCH_SESSION_ID_NOT_FOUND"):
        table.use(growing, 2, more=2)

    table.use(kept, 1)
    assert table.sessions.partition_count() == 5
    assert table.start(partitions=5) is not None


def test_epochs_wrap_to_one() -> None:
    table = Table(slots=1)
    session_id = table.start()
    assert session_id is not None
    session = table.sessions._sessions[session_id]
    session.epoch = 0x7FFFFFFF

    table.use(session_id, 0x7FFFFFFF)

    assert session.epoch == 1


def test_a_new_session_never_gets_an_id_that_is_taken_or_means_none() -> None:
    ids = iter([0, 7, 7, 9])
    table = FetchSessions(10, 120.0, lambda: 0.0, lambda: next(ids))
    request = FetchRequest(topics=[FetchTopic(topic_id=TopicId(bytes(16)), partitions=[FetchPartition()])])

    sessions = [table.start(request, True), table.start(request, True)]

    assert [s.id for s in sessions if s is not None] == [7, 9]
