"""Replica fetch sessions (KIP-227): only changes are sent, and no partition is forgotten or starved."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.replication.fetch_plan import FetchPlan, PartitionKey, PlannedFetch
from penstock.replication.follower import FetchAnswer, FetchPosition, FollowerState
from penstock.replication.throttle import ReplicationThrottle
from tests.amounts import amount
from tests.replication.logs import ModelLog

BACKOFF_MS = 10


def key(index: int) -> PartitionKey:
    return TopicId(b"t" * 16), index


class Followed:
    """A plan with partitions 0 to n-1, and their logs."""

    def __init__(self, partitions: int) -> None:
        self.plan = FetchPlan()
        self.logs = {key(i): ModelLog() for i in range(partitions)}
        self.followers = {k: FollowerState(1, 5, log, BACKOFF_MS) for k, log in self.logs.items()}
        for k, follower in self.followers.items():
            self.plan.follow(k, follower)

    def request(self, now_ms: int = 0, budget_used_up: bool = False) -> PlannedFetch:
        request = self.plan.next_request(now_ms, budget_used_up)
        assert request is not None
        return request

    def served(self, index: int) -> None:
        self.logs[key(index)].append(5, "x")
        self.plan.touched(key(index), served=True)

    def pause(self, index: int, now_ms: int = 0) -> None:
        self.followers[key(index)].failed(now_ms)
        self.plan.touched(key(index))


def test_the_first_request_names_all_partitions_and_the_next_only_moved_ones() -> None:
    followed = Followed(3)
    first = followed.request()
    assert (first.session_id, first.session_epoch, list(first.partitions)) == (0, 0, [key(0), key(1), key(2)])
    followed.plan.answered(77)
    followed.served(1)
    second = followed.request()
    assert second == PlannedFetch(77, 1, {key(1): FetchPosition(1, 5, 5, 0)}, [])
    followed.plan.answered(77)
    assert followed.request() == PlannedFetch(77, 2, {}, [])


def test_a_leader_that_keeps_no_session_gets_everything_each_time_those_served_last() -> None:
    followed = Followed(3)
    followed.request()
    followed.plan.answered(0)
    followed.served(0)
    request = followed.request()
    assert request.session_epoch == 0
    assert list(request.partitions) == [key(1), key(2), key(0)]


def test_a_lost_session_starts_over_and_closes_the_possible_old_one() -> None:
    followed = Followed(2)
    followed.request()
    followed.plan.answered(77)
    followed.plan.failed()
    assert followed.request()[:2] == (77, 0)
    followed.plan.failed(session_known=False)
    request = followed.request()
    assert request[:2] == (0, 0)
    assert len(request.partitions) == 2


def test_session_epochs_wrap_to_one() -> None:
    followed = Followed(1)
    followed.request()
    followed.plan.answered(77)
    followed.plan._session_epoch = (1 << 31) - 1
    followed.plan.answered(77)
    assert followed.request().session_epoch == 1


def test_a_partition_that_pauses_is_forgotten_and_comes_back() -> None:
    followed = Followed(2)
    followed.request()
    followed.plan.answered(77)
    followed.pause(0)
    assert followed.request().forgotten == [key(0)]
    followed.plan.answered(77)
    assert followed.plan.wake_at_ms() == BACKOFF_MS
    assert key(0) not in followed.request(BACKOFF_MS - 1).partitions
    followed.plan.answered(77)
    assert list(followed.request(BACKOFF_MS).partitions) == [key(0)]
    assert followed.plan.wake_at_ms() is None


def test_nothing_to_fetch_is_no_request() -> None:
    followed = Followed(1)
    followed.pause(0)
    assert followed.plan.next_request(0) is None
    assert Followed(0).plan.next_request(0) is None


def test_a_fenced_partition_is_left_out_until_a_new_leader_epoch() -> None:
    followed = Followed(2)
    first = followed.request()
    followed.plan.answered(77)
    k = key(0)
    followed.followers[k].answered(first.partitions[k], FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH), 0)
    followed.plan.touched(k)
    assert followed.request().forgotten == [k]
    assert followed.plan.wake_at_ms() is None
    followed.plan.answered(77)
    followed.plan.follow(k, FollowerState(1, 6, followed.logs[k], BACKOFF_MS))
    assert followed.request().partitions[k].leader_epoch == 6


def test_a_partition_that_is_left_is_forgotten() -> None:
    followed = Followed(2)
    followed.request()
    followed.plan.answered(77)
    followed.plan.leave(key(1))
    followed.plan.touched(key(1))
    assert followed.request().forgotten == [key(1)]
    assert len(followed.plan) == 1


def test_throttled_catch_up_waits_for_its_budget_and_others_do_not() -> None:
    followed = Followed(3)
    followed.plan.throttle([key(0), key(9)])
    assert list(followed.request(budget_used_up=True).partitions) == [key(1), key(2)]
    followed.plan.answered(77)
    assert list(followed.request().partitions) == [key(0)]
    followed.plan.answered(77)
    assert followed.request(budget_used_up=True).forgotten == [key(0)]
    followed.plan.answered(77)
    followed.plan.throttle([])
    assert list(followed.request(budget_used_up=True).partitions) == [key(0)]


def test_the_throttle_allows_one_second_of_bytes_and_recovers_an_overdraft() -> None:
    throttle = ReplicationThrottle(1000, 0)
    throttle.spent(3000, 0)
    assert throttle.exhausted(0)
    assert throttle.open_at_ms(0) == 2001
    assert throttle.exhausted(2000)
    assert not throttle.exhausted(2001)
    assert not throttle.exhausted(1_000_000)
    throttle.spent(1000, 1_000_000)
    assert throttle.exhausted(1_000_000), "idle time saves up one second, no more"


def test_no_rate_is_no_limit_and_a_new_rate_counts_from_now() -> None:
    throttle = ReplicationThrottle(None, 0)
    throttle.spent(1 << 40, 0)
    assert not throttle.exhausted(0)
    assert throttle.open_at_ms(5) == 5
    throttle.change_rate(1000, 10)
    assert not throttle.exhausted(10)
    throttle.spent(1000, 10)
    assert throttle.exhausted(10)
    throttle.change_rate(10, 10)
    assert throttle.exhausted(10), "a debt stays one"
    throttle.change_rate(None, 20)
    assert not throttle.exhausted(20)


class Sessions(RuleBasedStateMachine):
    """Whatever happens, after each request the leader's session is what the followers want fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.followed = Followed(4)
        self.now_ms = 0
        self.session: dict[PartitionKey, FetchPosition] = {}
        self.sent = False

    @rule(lost=st.booleans(), session=st.booleans(), budget_used_up=st.booleans())
    def request(self, lost: bool, session: bool, budget_used_up: bool) -> None:
        plan = self.followed.plan
        request = plan.next_request(self.now_ms, budget_used_up)
        wanted = {
            k: position
            for k, follower in self.followed.followers.items()
            if (position := follower.next_fetch(self.now_ms)) is not None
            and not (budget_used_up and k in plan._throttled)
        }
        if request is None:
            assert not wanted
            return
        if request.session_epoch == 0:
            self.session = {}
        self.session |= request.partitions
        for k in request.forgotten:
            del self.session[k]
        assert self.session == wanted == plan.remembered
        if lost:
            plan.failed()
        else:
            plan.answered(77 if session else 0)

    @rule(index=st.integers(0, 3))
    def serve(self, index: int) -> None:
        self.followed.served(index)

    @rule(index=st.integers(0, 3))
    def pause(self, index: int) -> None:
        self.followed.pause(index, self.now_ms)

    @rule(indexes=st.sets(st.integers(0, 3)))
    def throttle(self, indexes: set[int]) -> None:
        self.followed.plan.throttle(map(key, indexes))

    @rule(ms=st.integers(1, BACKOFF_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def pauses_are_known(self) -> None:
        wake = self.followed.plan.wake_at_ms()
        assert wake is None or wake > 0


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=amount(60), stateful_step_count=30, deadline=None)
