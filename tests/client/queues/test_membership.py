from __future__ import annotations

from typing import Any

import pytest

from penstock.client.queues.membership import Heartbeat, Membership
from penstock.client.queues.message import TopicIdPartition
from penstock.model.errors import ErrorCode
from penstock.wire.apis.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

ORDERS = b"o" * 16


def answer(member: Membership, **fields: Any) -> Heartbeat:
    return member.answered(member.request(), ShareGroupHeartbeatResponse(**fields))


def joined() -> Membership:
    member = Membership("workers", "me", ["orders"])
    answer(member, member_epoch=3, heartbeat_interval_ms=5000)
    return member


def test_the_topics_are_named_until_the_coordinator_knows_them() -> None:
    member = Membership("workers", "me", ["orders"], rack="a")
    first = member.request()
    assert (first.member_id, first.member_epoch, first.rack_id) == ("me", 0, "a")
    assert first.subscribed_topic_names == ["orders"]
    assert answer(member, member_epoch=1, heartbeat_interval_ms=100) == Heartbeat(0.1)
    second = member.request()
    assert (second.member_epoch, second.rack_id, second.subscribed_topic_names) == (1, None, None)
    member.subscribe(["orders", "refunds"])
    assert member.request().subscribed_topic_names == ["orders", "refunds"]


def test_an_assignment_is_passed_on() -> None:
    assigned = Assignment(topic_partitions=[TopicPartitions(topic_id=ORDERS, partitions=[0, 2])])
    beat = answer(joined(), member_epoch=4, heartbeat_interval_ms=5000, assignment=assigned)
    assert beat == Heartbeat(5.0, frozenset({TopicIdPartition(ORDERS, 0), TopicIdPartition(ORDERS, 2)}))


def test_a_new_member_without_partitions_does_not_wait_for_a_whole_interval() -> None:
    member = Membership("workers", "me", ["orders"])
    delays = [answer(member, member_epoch=1, heartbeat_interval_ms=5000).delay_s for _ in range(21)]
    assert delays == [0.25] * 20 + [5.0]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_member_that_is_not_known_any_more_joins_again(code: ErrorCode) -> None:
    member = joined()
    assert answer(member, error_code=code) == Heartbeat(0.0, frozenset())
    again = member.request()
    assert (again.member_id, again.member_epoch, again.subscribed_topic_names) == ("me", 0, ["orders"])


def test_errors_that_pass() -> None:
    member = joined()
    assert answer(member, error_code=ErrorCode.NOT_COORDINATOR).finds_coordinator
    loading = answer(member, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert (loading.finds_coordinator, loading.failure) == (False, None)
    assert member.request().member_epoch == 3


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "share.version"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.share.max.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ on the group"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "another group"),
    ],
)
def test_errors_that_do_not_pass(code: ErrorCode, advice: str) -> None:
    member = Membership("workers", "me", ["orders"])
    failure = answer(member, error_code=code, error_message="no").failure
    assert failure is not None
    assert failure.code == code
    assert advice in str(failure)


def test_only_a_member_leaves() -> None:
    assert Membership("workers", "me", ["orders"]).leave_request() is None
    member = joined()
    leaving = member.leave_request()
    assert leaving is not None
    assert leaving.member_epoch == -1
    assert member.leave_request() is None
