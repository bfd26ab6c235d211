"""The table of fetch sessions: a fixed number of slots, and which session loses its slot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.broker.fetch.sessions import FetchSessions
from penstock.model.errors import ApiError
from penstock.model.ids import TopicId
from penstock.testing import broker
from penstock.wire.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    create_topic,
)
from tests.broker.sessions import SessionClient


@pytest.fixture
def small_table() -> Iterator[RawClient]:
    """A connection to a broker with room for one session."""
    with (
        broker(config={"max.incremental.fetch.session.cache.slots": "1"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        yield client


def test_a_fetch_without_a_session_is_answered_in_full(small_table: RawClient) -> None:
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


def test_the_least_recently_used_session_is_evicted() -> None:
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
    assert len(table.sessions) == 1


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
    assert len(table.sessions) == 1
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


def test_a_client_has_a_quarter_of_all_partitions() -> None:
    """A client cannot take the sessions of all others by naming partitions."""
    ids = count(1)
    sessions = FetchSessions(10, 120, lambda: 0.0, lambda: next(ids), most_partitions=40)

    def of(number: int) -> FetchRequest:
        partitions = [FetchPartition(partition=index) for index in range(number)]
        return FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)])

    first = sessions.start(of(6), False, "greedy")
    assert first is not None
    assert sessions.start(of(6), False, "greedy") is None
    assert sessions.start(of(6), False, "modest") is not None
    sessions.close(first.id)
    assert sessions.start(of(10), False, "greedy") is not None
