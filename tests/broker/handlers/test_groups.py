"""Membership and administration of groups over the raw protocol, in every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.conftest import penstock_only
from tests.broker.handlers.group_requests import BATCHED, commit, fetch, join
from tests.broker.raw import RawClient
from tests.broker.requests import (
    AGAINST,
    Topic,
    every_version,
    new_name,
)
from tests.groups.shard_driver import subscription


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker without a rebalance delay, or the one that `tests.broker.conftest` names."""
    if AGAINST:
        yield AGAINST
        return
    with broker(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        with RawClient(running.bootstrap) as client:
            client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["any"]))
        yield running.bootstrap


@pytest.fixture
def group() -> str:
    return new_name("group")


@pytest.mark.parametrize("version", every_version(JOIN_GROUP))
def test_a_member_joins_syncs_heartbeats_and_leaves(client: RawClient, group: str, version: int) -> None:
    joined = join(client, version, group)

    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assert [m.member_id for m in joined.members] == [joined.member_id]
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"everything")],
    )
    nameless = client.call(SYNC_GROUP, 5, sync)
    assert nameless.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = client.call(SYNC_GROUP, min(version, SYNC_GROUP.max_version), sync)
    assert (synced.error_code, synced.assignment) == (0, b"everything")
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=joined.member_id)
    assert client.call(HEARTBEAT, min(version, HEARTBEAT.max_version), beat).error_code == 0
    leaving = LeaveGroupRequest(
        group_id=group, member_id=joined.member_id, members=[MemberIdentity(member_id=joined.member_id)]
    )
    left = client.call(LEAVE_GROUP, min(version, LEAVE_GROUP.max_version), leaving)
    assert left.error_code == 0 and all(m.error_code == 0 for m in left.members)
    assert client.call(HEARTBEAT, 4, beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", every_version(JOIN_GROUP))
def test_an_error_comes_without_a_protocol(client: RawClient, group: str, version: int) -> None:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="unknown",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
    )
    response = client.call(JOIN_GROUP, version, request)

    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "unknown")
    assert response.protocol_name == (None if version >= 7 else "")


def test_an_error_that_comes_later_has_no_protocol_either(client: RawClient, group: str) -> None:
    """Removed by an administrator while it waits in JoinGroup for the other member."""
    first = join(client, 9, group)
    with client.another() as waiting:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            group_instance_id="static",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
        )
        waiting.send(JOIN_GROUP, 9, request)
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id)
        while client.call(HEARTBEAT, 4, beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        removed = [MemberIdentity(member_id="", group_instance_id="static")]
        client.call(LEAVE_GROUP, 5, LeaveGroupRequest(group_id=group, members=removed))
        answer = waiting.receive()

    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, None)


@pytest.mark.parametrize("version", every_version(LEAVE_GROUP))
def test_leaving_a_group_without_being_a_member(client: RawClient, group: str, version: int) -> None:
    request = LeaveGroupRequest(group_id=group, member_id="x", members=[MemberIdentity(member_id="x")])

    response = client.call(LEAVE_GROUP, version, request)

    reported = [m.error_code for m in response.members] if version >= 3 else [response.error_code]
    assert reported == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_that_disconnects_does_not_block_other_members(client: RawClient, group: str) -> None:
    """The one that waits in JoinGroup for the other goes away; the other gets its answer all the same."""
    first = join(client, 3, group)
    with client.another() as impatient:
        impatient.send(
            JOIN_GROUP,
            3,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
            ),
        )
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=first.member_id)
        while client.call(HEARTBEAT, 4, beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
    again = client.call(
        JOIN_GROUP,
        3,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=first.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
        ),
    )
    assert (again.error_code, again.generation_id, len(again.members)) == (0, 2, 2)


@pytest.mark.parametrize("version", every_version(CONSUMER_GROUP_HEARTBEAT))
def test_a_member_of_the_new_protocol(client: RawClient, topic: Topic, group: str, version: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="me" if version >= 1 else "",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[topic.name],
        topic_partitions=[],
    )
    joined = client.call(CONSUMER_GROUP_HEARTBEAT, version, request)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5000)
    assert joined.member_id and (version == 0 or joined.member_id == "me")
    assert joined.assignment is not None
    assert [(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions] == [(topic.id, [0])]

    for describe_version in every_version(CONSUMER_GROUP_DESCRIBE):
        wanted = ConsumerGroupDescribeRequest(
            group_ids=[group, "unknown"], include_authorized_operations=True
        )
        response = client.call(CONSUMER_GROUP_DESCRIBE, describe_version, wanted)
        found = {g.group_id: g for g in response.groups}
        known, unknown = found[group], found["unknown"]
        assert (known.group_state, known.group_epoch, known.assignor_name) == ("Stable", 2, "uniform")
        assert known.authorized_operations == 0b1101_0100_1000
        (member,) = known.members
        assert [t.topic_name for t in member.assignment.topic_partitions] == [topic.name]
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND and "unknown" in (
            unknown.error_message or ""
        )


@pytest.mark.parametrize("blank", ["", " ", "\t "])
@pytest.mark.parametrize("field", ["group_id", "member_id", "instance_id", "rack_id"])
def test_blank_names_are_refused(client: RawClient, group: str, field: str, blank: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="me",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    setattr(request, field, blank)
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_an_invalid_regular_expression_is_refused_with_a_reason(client: RawClient, group: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="me",
        rebalance_timeout_ms=1000,
        subscribed_topic_regex="(",
        topic_partitions=[],
    )
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "`(`" in (response.error_message or "")


@penstock_only  # which shows a group only once its first record is committed
@pytest.mark.parametrize("version", every_version(DESCRIBE_GROUPS))
def test_describe_groups(client: RawClient, group: str, version: int) -> None:
    join(client, 9, group)
    request = DescribeGroupsRequest(groups=[group, "unknown"], include_authorized_operations=True)

    known, unknown = client.call(DESCRIBE_GROUPS, version, request).groups

    assert (known.error_code, known.group_state) == (0, "CompletingRebalance")
    assert (known.protocol_type, len(known.members)) == ("consumer", 1)
    assert known.members[0].client_host == "/127.0.0.1"
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", every_version(LIST_GROUPS))
def test_list_groups(client: RawClient, topic: Topic, group: str, version: int) -> None:
    commit(client, 9, group, topic)

    def listed(states: list[str], types: list[str]) -> bool:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return group in [g.group_id for g in client.call(LIST_GROUPS, version, request).groups]

    assert listed([], [])
    if version >= 4:
        assert listed(["empty", "Stable"], []) and not listed(["STABLE"], [])
    if version >= 5:
        assert listed([], ["Classic"]) and not listed([], ["consumer"])
        groups = client.call(LIST_GROUPS, version, ListGroupsRequest()).groups
        assert [g.group_type for g in groups if g.group_id == group] == ["classic"]


@pytest.mark.parametrize("version", every_version(DELETE_GROUPS))
def test_delete_groups(client: RawClient, topic: Topic, group: str, version: int) -> None:
    commit(client, 9, group, topic)
    busy = f"{group}-busy"
    join(client, 9, busy)

    request = DeleteGroupsRequest(groups_names=[group, busy, "unknown"])
    results = {r.group_id: r.error_code for r in client.call(DELETE_GROUPS, version, request).results}

    assert results == {
        group: ErrorCode.NONE,
        busy: ErrorCode.NON_EMPTY_GROUP,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert fetch(client, BATCHED, group, topic) == [(-1, "", 0)]


@penstock_only
def test_without_an_offsets_topic_there_are_no_groups() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        assert client.call(LIST_GROUPS, 5, ListGroupsRequest()).groups == []
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert client.call(HEARTBEAT, 4, beat).error_code == ErrorCode.NOT_COORDINATOR
