"""Share groups on the wire: delivery, acknowledgements, sessions, administration, errors of bad input.

The error codes follow the source of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.shares import share_fetch
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.testing import QueueCluster
from penstock.testing.brokers import BrokerThread, broker
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, new_name, until
from tests.broker.share_groups import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    append,
    offsets,
    set_group_configs,
)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    settings = {
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.record.lock.duration.ms": 15000,
        "group.share.max.share.sessions": 8,
        "group.share.assignment.interval.ms": 0,
    }
    with broker(config=settings) as started:
        yield started


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client)


@pytest.fixture
def group(client: RawClient) -> str:
    name = new_name("group")
    set_group_configs(client, name, share_auto_offset_reset="earliest")
    return name


def test_records_are_delivered_once_they_are_accepted(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a", b"b", b"c")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 2, 1)]
    assert member.outcome((0, 1, [ACCEPT]), (2, 2, [RELEASE])) == "NONE"
    assert member.take() == [(2, 2, 2)]
    assert member.outcome((2, 2, [ACCEPT])) == "NONE"
    assert member.outcome((0, 2, [ACCEPT])) == "NONE", "below the start offset"
    assert offsets(client, group) == [(3, 0)]


def test_a_fetch_of_no_bytes_acquires_nothing(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    append(client, topic, b"b")
    response, partition = member.fetch(max_bytes=0, max_wait_ms=1)
    assert response.error_code == ErrorCode.NONE
    assert partition is None or partition.acquired_records == []
    assert member.take() == [(1, 1, 1)]


def test_a_new_record_wakes_a_waiting_fetch(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    with client.another() as producer:
        append(producer, topic, b"b")
        assert member.take(max_wait_ms=20_000) == [(1, 1, 1)]


def test_records_of_many_partitions_are_delivered(
    client: RawClient, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition is many here: the session is looked at as one of thousands is."""
    monkeypatch.setattr(share_fetch, "_AT_ONCE", 0)
    test_records_are_delivered_once_they_are_accepted(client, topic, group)


def test_a_waiting_fetch_of_many_partitions_is_woken(
    client: RawClient, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_fetch, "_AT_ONCE", 0)
    test_a_new_record_wakes_a_waiting_fetch(client, topic, group)


def test_a_fetch_of_no_bytes_at_least_does_not_wait(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    response, partition = member.fetch(min_bytes=0, max_wait_ms=600_000)
    assert response.error_code == ErrorCode.NONE
    assert partition is None or partition.acquired_records == []


def test_a_group_without_state_is_not_loaded_again_and_again(
    client: RawClient, topic: Topic, group: str
) -> None:
    """Each attempt would be a request to the share coordinator, and a line in the log."""
    Member(client, group, topic).join()
    _, partition = Member(client, new_name("group"), topic).fetch(max_wait_ms=600_000)
    assert partition.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_closed_connection_releases(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    with client.another() as other:
        assert Member(other, group, topic).join().take() == [(0, 0, 1)]
    assert Member(client, group, topic).join().take() == [(0, 0, 2)]


def test_a_session_that_is_opened_again_keeps_its_records(
    client: RawClient, topic: Topic, group: str
) -> None:
    """As in Kafka: a client that opens its session again after an error acknowledges what it has."""
    append(client, topic, b"a", b"b")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 1, 1)]
    append(client, topic, b"c")
    member.session_epoch = 0
    assert member.take() == [(2, 2, 1)]
    assert member.outcome((0, 2, [ACCEPT])) == "NONE"


def test_a_session_that_is_opened_on_another_connection_releases(
    client: RawClient, topic: Topic, group: str
) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    with client.another() as other:
        member.client, member.session_epoch = other, 0
        assert member.take() == [(0, 0, 2)]


def test_two_members_share_a_partition(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, *[b"x"] * 10)
    with client.another() as second:
        one, two = Member(client, group, topic).join(), Member(second, group, topic).join()
        strict = {"max_records": 4, "share_acquire_mode": 1}
        assert one.take(**strict) == [(0, 3, 1)]
        assert two.take(**strict) == [(4, 7, 1)]
        assert one.take(**strict) == [(8, 9, 1)]
        assert two.outcome((0, 0, [ACCEPT])) == "INVALID_RECORD_STATE"


def test_expired_locks_and_the_delivery_limit(penstock_queues: QueueCluster) -> None:
    with RawClient(penstock_queues.bootstrap) as client:
        topic = create_topic(client)
        set_group_configs(client, "group", share_auto_offset_reset="earliest")
        set_group_configs(
            client, "group", share_delivery_count_limit="2", share_record_lock_duration_ms="20000"
        )
        append(client, topic, b"a", b"b")
        member = Member(client, "group", topic).join()
        assert member.take() == [(0, 1, 1)]
        assert member.fetch(max_wait_ms=1)[1] is None
        penstock_queues.advance(20.1)
        assert member.take() == [(0, 1, 2)]
        penstock_queues.advance(20.1)
        until(lambda: offsets(client, "group") == [(2, 0)])  # archived when the second lock expires
        assert member.fetch(max_wait_ms=1)[1] is None


def test_locks_are_renewed(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 0, [RENEW])) == "INVALID_REQUEST", "the request is not declared as a renewal"
    assert member.outcome((0, 0, [RENEW]), renew=True) == "NONE"
    response, _ = member.fetch((0, 0, [RENEW]), is_renew_ack=True)
    assert "maxBytes must be set to 0" in response.error_message
    assert response.error_code == ErrorCode.INVALID_REQUEST
    set_group_configs(client, group, share_renew_acknowledge_enable="false")
    assert member.outcome((0, 0, [RENEW]), renew=True) == "INVALID_RECORD_STATE"


def test_the_state_survives_a_new_leader(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, *[b"x"] * 5)
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((1, 1, [ACCEPT]), (3, 3, [RELEASE])) == "NONE"
    # The last session of the group ends: the leader discards its state and loads it again.
    assert ErrorCode(member.acknowledge(epoch=-1).error_code).name == "NONE"
    member.session_epoch = 0
    assert member.take() == [(0, 0, 2), (2, 4, 2)]


@pytest.mark.parametrize(
    ("acks", "expected"),
    [
        ([(2, 1, [ACCEPT])], "INVALID_REQUEST"),
        ([(0, 1, [])], "INVALID_REQUEST"),
        ([(0, 2, [ACCEPT, ACCEPT])], "INVALID_REQUEST"),
        ([(0, 0, [7])], "INVALID_REQUEST"),
        ([(0, 0, [-1])], "INVALID_REQUEST"),
        ([(2, 2, [ACCEPT]), (0, 0, [ACCEPT])], "INVALID_REQUEST"),
        ([(100, 100, [ACCEPT])], "INVALID_REQUEST"),
        ([(0, 100, [ACCEPT])], "INVALID_REQUEST"),
        ([(0, 1, [ACCEPT]), (1, 1, [ACCEPT])], "INVALID_RECORD_STATE"),
    ],
)
def test_bad_acknowledgements(
    client: RawClient, topic: Topic, group: str, acks: list[tuple[int, int, list[int]]], expected: str
) -> None:
    append(client, topic, b"a", b"b", b"c")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 2, 1)]
    assert member.outcome(*acks) == expected
    assert member.outcome((0, 2, [ACCEPT, REJECT, GAP])) == "NONE", "nothing of the bad request was applied"


def test_bad_requests(client: RawClient, topic: Topic, group: str) -> None:
    member = Member(client, group, topic).join()

    def fetched(**changes: Any) -> str:
        return ErrorCode(member.fetch(**changes)[0].error_code).name

    assert fetched(group_id=None) == "INVALID_REQUEST"
    assert fetched(member_id="") == "INVALID_REQUEST"
    assert fetched(member_id="m" * 37) == "INVALID_REQUEST"
    assert fetched(share_session_epoch=5) == "SHARE_SESSION_NOT_FOUND"
    assert fetched(share_session_epoch=-1) == "SHARE_SESSION_NOT_FOUND"
    assert ErrorCode(member.fetch((0, 0, [ACCEPT]))[0].error_code).name == "INVALID_REQUEST"
    assert member.outcome(epoch=1) == "SHARE_SESSION_NOT_FOUND"
    assert fetched(max_wait_ms=1) == "NONE"
    known, member.topic = member.topic, member.topic._replace(id=TopicId(bytes(15) + b"\x07"))
    assert member.outcome((2, 1, [ACCEPT])) == "UNKNOWN_TOPIC_ID", "before all other errors"
    member.topic = known
    assert member.outcome(epoch=0) == "INVALID_SHARE_SESSION_EPOCH"
    assert member.outcome(epoch=9) == "INVALID_SHARE_SESSION_EPOCH"
    assert fetched(share_session_epoch=9) == "INVALID_SHARE_SESSION_EPOCH"


def test_sessions_are_limited(client: RawClient, topic: Topic, group: str) -> None:
    codes = [
        ErrorCode(Member(client, group, topic, f"m{n}").fetch(max_wait_ms=1)[0].error_code).name
        for n in range(10)
    ]
    assert codes[0] == "NONE"
    assert codes[-1] == "SHARE_SESSION_LIMIT_REACHED"


def test_bad_heartbeats(client: RawClient, topic: Topic, group: str) -> None:
    member = Member(client, group, topic).join()
    assert ErrorCode(member.heartbeat(epoch=99).error_code).name == "FENCED_MEMBER_EPOCH"
    assert ErrorCode(member.heartbeat(epoch=-2).error_code).name == "INVALID_REQUEST"
    stranger = Member(client, group, topic)
    assert ErrorCode(stranger.heartbeat(epoch=1).error_code).name == "UNKNOWN_MEMBER_ID"
    nowhere = Member(client, new_name("group"), topic)
    assert ErrorCode(nowhere.heartbeat(epoch=1).error_code).name == "GROUP_ID_NOT_FOUND"


def test_administration(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a", b"b", b"c")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 2, [ACCEPT])) == "NONE"
    assert offsets(client, group) == [(3, 0)]
    (described,) = client.call(SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=[group])).groups
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 1)
    listed = client.call(LIST_GROUPS, 5, ListGroupsRequest(types_filter=["share"])).groups
    assert (group, "share") in [(g.group_id, g.group_type) for g in listed]
    assert reset(client, group, topic, 1) == "NON_EMPTY_GROUP"
    assert deleted(client, group) == "NON_EMPTY_GROUP"
    member.acknowledge(epoch=-1)
    member.heartbeat(epoch=-1)
    assert reset(client, group, topic, 1) == "NONE"
    assert offsets(client, group) == [(1, 2)]
    again = Member(client, group, topic).join()
    assert again.take() == [(1, 2, 1)]
    again.acknowledge(epoch=-1)
    again.heartbeat(epoch=-1)
    request = delete.DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)]
    )
    (answer,) = client.call(delete.DELETE_SHARE_GROUP_OFFSETS, 0, request).responses
    assert ErrorCode(answer.error_code).name == "NONE"
    assert offsets(client, group) == []
    assert deleted(client, group) == "NONE"


def reset(client: RawClient, group: str, topic: Topic, offset: int) -> str:
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    wanted = alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[partition])
    request = alter.AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted])
    response = client.call(alter.ALTER_SHARE_GROUP_OFFSETS, 0, request)
    return ErrorCode(response.error_code or response.responses[0].partitions[0].error_code).name


def deleted(client: RawClient, group: str) -> str:
    (result,) = client.call(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group])).results
    return ErrorCode(result.error_code).name
