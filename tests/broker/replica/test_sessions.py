"""The leader's end of replica fetch sessions: what is looked at, and for how long a session is kept."""

from __future__ import annotations

from itertools import count
from typing import cast

import pytest

from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.sessions import FollowedPartition, ReplicaSession, ReplicaSessions
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse
from tests.wire.replica_requests import ReplicaRequest

TOPIC_ID = TopicId(b"t" * 16)


class FakeLog:
    end_offset = 5


class FakePartition:
    def __init__(self) -> None:
        self.followers: dict[FollowedPartition, None] = {}
        self.log = FakeLog()


def partition() -> Partition:
    return cast(Partition, FakePartition())


class Parked:
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.ended = False

    def more(self, size: int) -> None:
        self.heard.append(size)

    def supersede(self, response: FetchResponse) -> None:
        self.ended = True


def call(
    *indexes: int,
    session_id: int = 0,
    session_epoch: int = 0,
    replica: int = 2,
    broker_epoch: int = 7,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    wanted = [(TOPIC_ID, index, -1, 5, -1, -1, 100) for index in indexes]
    gone = [(TOPIC_ID, index) for index in forgotten]
    numbers = (0, 0, 1000, session_id, session_epoch, replica, broker_epoch)
    return ReplicaRequest(*numbers, wanted, gone).message()


def new_sessions(most: int = 10) -> ReplicaSessions:
    return ReplicaSessions(count(1).__next__, most)


def full(sessions: ReplicaSessions, *indexes: int, replica: int = 2, epoch: int = 7) -> ReplicaSession:
    session = sessions.take(call(*indexes, replica=replica, broker_epoch=epoch), now_ms=0)
    for followed in session.partitions.values():
        followed.subscribe(partition())
    return session


def ready(session: ReplicaSession) -> list[int]:
    return [followed.index for followed in session.ready]


def test_only_partitions_with_news_are_looked_at() -> None:
    session = full(new_sessions(), 0, 1, 2)
    followed = list(session.partitions.values())
    for each in followed:
        each.mark_sent(0, 0, b"")
    assert ready(session) == []
    followed[1].grew(10)
    followed[2].moved()
    assert ready(session) == [1, 2]


def test_growth_wakes_the_fetch_that_waits_and_a_commit_does_not() -> None:
    session = full(new_sessions(), 0)
    (followed,) = session.partitions.values()
    session.waiting = parked = Parked()
    followed.moved()
    assert parked.heard == []
    followed.grew(10)
    assert parked.heard == [10]


def test_the_next_request_of_a_session_ends_the_wait_of_the_one_before() -> None:
    sessions = new_sessions()
    session = full(sessions, 0)
    session.waiting = parked = Parked()
    sessions.take(call(session_id=session.id, session_epoch=1), now_ms=1)
    assert parked.ended


def test_partitions_that_were_not_served_whole_stay_ready_behind_the_others() -> None:
    session = full(new_sessions(), 0, 1)
    first = next(iter(session.partitions.values()))
    first.fetch_offset = 3
    first.mark_sent(0, 0, b"")
    assert ready(session) == [0, 1], "it got nothing, and is still the first"
    first.mark_sent(0, 0, b"batch")
    assert ready(session) == [1, 0]


def test_an_incremental_answer_names_only_news() -> None:
    session = full(new_sessions(), 0)
    (followed,) = session.partitions.values()
    assert followed.mark_sent(5, 0, b"")
    assert not followed.mark_sent(5, 0, b"")
    assert followed.mark_sent(6, 0, b"")
    assert followed.mark_sent(6, 1, b"")
    assert followed.mark_sent(6, 1, b"records")


def test_positions_of_an_earlier_leader_epoch_are_sent_again() -> None:
    """A follower ignores a response to a request of another leader epoch."""
    session = full(new_sessions(), 0)
    (followed,) = session.partitions.values()
    assert followed.mark_sent(5, 0, b"")
    followed.update(FetchPartition(fetch_offset=5, current_leader_epoch=-1))
    assert not followed.mark_sent(5, 0, b"")
    followed.update(FetchPartition(fetch_offset=5, current_leader_epoch=1))
    assert followed.mark_sent(5, 0, b"")


def test_an_error_is_sent_each_time_and_the_state_before_it_again() -> None:
    session = full(new_sessions(), 0, 1)
    first = next(iter(session.partitions.values()))
    assert first.mark_sent(5, 0, b"")
    first.mark_refused()
    assert ready(session) == [1, 0]
    assert first.mark_sent(5, 0, b"")


class FakeLeadership:
    def __init__(self) -> None:
        self.heard: list[int] = []

    def fetched(self, replica: int, broker_epoch: int, offset: int, log_start: int, now_ms: int) -> None:
        self.heard.append(now_ms)


def test_a_request_speaks_for_all_partitions_but_only_to_the_leadership_that_knows_the_position() -> None:
    """A new leadership has to judge the position itself: the follower's log may be no prefix of its log."""
    sessions = new_sessions()
    session = full(sessions, 0)
    (followed,) = session.partitions.values()
    led = followed.partition
    assert led is not None
    led.leadership = cast(Leadership, knows := FakeLeadership())
    followed.report_position(led, now_ms=0)
    sessions.take(call(session_id=session.id, session_epoch=1), now_ms=1)
    at_once(session.refresh(0, absent_only=False))
    assert knows.heard == [0, 1]
    led.leadership = cast(Leadership, is_new := FakeLeadership())
    at_once(session.refresh(0, absent_only=False))
    assert (knows.heard, is_new.heard) == ([0, 1], [])


def test_forgotten_partitions_get_no_notifications() -> None:
    sessions = new_sessions()
    session = full(sessions, 0, 1)
    gone = session.partitions[TOPIC_ID, 0]
    subscribed = gone.partition
    assert subscribed is not None
    sessions.take(call(session_id=session.id, session_epoch=1, forgotten=(0,)), now_ms=1)
    assert gone not in subscribed.followers
    assert ready(session) == [1]


@pytest.mark.parametrize(
    ("session_id", "epoch", "replica", "broker_epoch", "error"),
    [
        (99, 1, 2, 7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 2, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 3, 7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 1, 2, 8, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
    ids=["unknown", "out of step", "somebody else's", "another incarnation's"],
)
def test_a_session_is_its_followers_alone(
    session_id: int, epoch: int, replica: int, broker_epoch: int, error: ErrorCode
) -> None:
    sessions = new_sessions()
    assert full(sessions, 0).id == 1
    with pytest.raises(ApiError) as refused:
        sessions.take(
            call(session_id=session_id, session_epoch=epoch, replica=replica, broker_epoch=broker_epoch),
            now_ms=1,
        )
    assert refused.value.code == error


def test_sessions_are_bounded_and_the_least_recently_used_is_evicted() -> None:
    sessions = new_sessions(most=2)
    first, second = full(sessions, 0, replica=2), full(sessions, 0, replica=3)
    sessions.take(call(session_id=first.id, session_epoch=1), now_ms=1)
    third = full(sessions, 0, replica=4)
    assert [session.id for session in sessions] == [first.id, third.id]
    assert all(followed.partition is None for followed in second.partitions.values())


def test_a_new_incarnation_ends_the_sessions_of_the_one_before() -> None:
    sessions = new_sessions()
    ended = full(sessions, 0, epoch=7)
    ended.waiting = parked = Parked()
    other = full(sessions, 0, replica=3, epoch=7)
    again = full(sessions, 0, epoch=8)
    assert [session.id for session in sessions] == [other.id, again.id]
    assert parked.ended, "no other request would"
    assert ready(ended) == []
