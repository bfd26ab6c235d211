"""Share groups on the wire: delivery, acknowledgements, sessions, administration, errors of bad input.

The error codes follow the source of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing.brokers import BrokerThread, broker
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.apis import incremental_alter_configs as configs
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.share_acknowledge import (
    SHARE_ACKNOWLEDGE,
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.wire.apis.share_fetch import SHARE_FETCH, FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, create_topic, new_name, produce_request

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP_RESOURCE = 32


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    settings = {
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.record.lock.duration.ms": 15000,
        "group.share.max.share.sessions": 8,
    }
    with broker(config=settings) as started, RawClient(started.bootstrap) as connected:
        update = FeatureUpdate(feature="share.version", max_version_level=1, upgrade_type=1)
        answer = connected.ask(UPDATE_FEATURES, 1, UpdateFeaturesRequest(feature_updates=[update]))
        assert answer.error_code == ErrorCode.NONE
        yield started


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client)


def append(client: RawClient, topic: Topic, *values: bytes) -> None:
    (answer,) = client.ask(PRODUCE, 13, produce_request(topic, batch_of(values), version=13)).responses
    assert answer.partition_responses[0].error_code == ErrorCode.NONE


def set_configs(client: RawClient, group: str, **values: str) -> None:
    changes = [
        configs.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in values.items()
    ]
    resource = configs.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=changes
    )
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.ask(configs.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


class Member:
    """A member of a share group with one topic, as a client on the wire."""

    def __init__(self, client: RawClient, group: str, topic: Topic, name: str = "") -> None:
        self.client, self.group, self.topic = client, group, topic
        self.id = name or new_name("m")[-36:]
        self.epoch = 0
        self.session_epoch = 0

    def join(self) -> Member:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        self.client.ask(FIND_COORDINATOR, 4, request)
        assigned: Any = None
        while not assigned:
            response = self.heartbeat()
            assert response.error_code == ErrorCode.NONE, response.error_message
            self.epoch = response.member_epoch
            assigned = response.assignment and response.assignment.topic_partitions
        return self

    def heartbeat(self, epoch: int | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=[self.topic.name],
        )
        return self.client.ask(SHARE_GROUP_HEARTBEAT, 1, request)

    def fetch(self, *acks: tuple[int, int, list[int]], version: int = 2, **changes: Any) -> Any:
        """(response, its only partition or None)."""
        partition = FetchPartition(partition_index=0, acknowledgement_batches=_batches(acks))
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[FetchTopic(topic_id=self.topic.id, partitions=[partition])],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        response = self.client.ask(SHARE_FETCH, version, request)
        if not response.error_code and request.share_session_epoch >= 0:
            self.session_epoch = request.share_session_epoch + 1
        return response, response.responses[0].partitions[0] if response.responses else None

    def take(self, **changes: Any) -> list[tuple[int, int, int]]:
        """Fetch until there are acquired records: (first, last, delivery count)."""
        for _ in range(40):
            response, partition = self.fetch(**changes)
            assert response.error_code == ErrorCode.NONE, response.error_message
            if partition is not None and partition.acquired_records:
                return [(a.first_offset, a.last_offset, a.delivery_count) for a in partition.acquired_records]
        raise AssertionError("no records came")

    def acknowledge(
        self,
        *acks: tuple[int, int, list[int]],
        version: int = 2,
        epoch: int | None = None,
        renew: bool = False,
    ) -> Any:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic.id,
                    partitions=[
                        AcknowledgePartition(partition_index=0, acknowledgement_batches=_batches(acks))
                    ],
                )
            ],
        )
        response = self.client.ask(SHARE_ACKNOWLEDGE, version, request)
        if not response.error_code and request.share_session_epoch > 0:
            self.session_epoch = request.share_session_epoch + 1
        return response

    def outcome(self, *acks: tuple[int, int, list[int]], **changes: Any) -> str:
        """The name of the error of an acknowledgement."""
        response = self.acknowledge(*acks, **changes)
        code = response.error_code or response.responses[0].partitions[0].error_code
        return ErrorCode(code).name


def _batches(acks: tuple[tuple[int, int, list[int]], ...]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=f, last_offset=last, acknowledge_types=t) for f, last, t in acks
    ]


@pytest.fixture
def group(client: RawClient) -> str:
    name = new_name("group")
    set_configs(client, name, share_auto_offset_reset="earliest")
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


def test_a_new_record_wakes_a_waiting_fetch(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 0, 1)]
    with client.another() as producer:
        append(producer, topic, b"b")
        assert member.take(max_wait_ms=20_000) == [(1, 1, 1)]


def test_a_closed_connection_releases(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    with client.another() as other:
        assert Member(other, group, topic).join().take() == [(0, 0, 1)]
    assert Member(client, group, topic).join().take() == [(0, 0, 2)]


def test_two_members_share_a_partition(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, *[b"x"] * 10)
    with client.another() as second:
        one, two = Member(client, group, topic).join(), Member(second, group, topic).join()
        strict = {"max_records": 4, "share_acquire_mode": 1}
        assert one.take(**strict) == [(0, 3, 1)]
        assert two.take(**strict) == [(4, 7, 1)]
        assert one.take(**strict) == [(8, 9, 1)]
        assert two.outcome((0, 0, [ACCEPT])) == "INVALID_RECORD_STATE"


def test_expired_locks_and_the_delivery_limit(client: RawClient, topic: Topic, group: str) -> None:
    set_configs(client, group, share_record_lock_duration_ms="1000", share_delivery_count_limit="2")
    append(client, topic, b"a", b"b")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 1, 1)]
    assert member.take() == [(0, 1, 2)]
    while offsets(client, group) != [(2, 0)]:  # archived when the second lock expires
        assert member.fetch()[1] is None


def test_locks_are_renewed(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 0, [RENEW])) == "INVALID_REQUEST", "the request is not declared as a renewal"
    assert member.outcome((0, 0, [RENEW]), renew=True) == "NONE"
    response, _ = member.fetch((0, 0, [RENEW]), is_renew_ack=True)
    assert "maxBytes must be set to 0" in response.error_message
    assert response.error_code == ErrorCode.INVALID_REQUEST
    set_configs(client, group, share_renew_acknowledge_enable="false")
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


def offsets(client: RawClient, group: str) -> list[tuple[int, int]]:
    """(start offset, lag) of the share partitions."""
    wanted = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = describe.DescribeShareGroupOffsetsRequest(groups=[wanted])
    (answer,) = client.ask(describe.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    return [(p.start_offset, p.lag) for topic in answer.topics for p in topic.partitions]


def test_administration(client: RawClient, topic: Topic, group: str) -> None:
    append(client, topic, b"a", b"b", b"c")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 2, [ACCEPT])) == "NONE"
    assert offsets(client, group) == [(3, 0)]
    (described,) = client.ask(SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=[group])).groups
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 1)
    listed = client.ask(LIST_GROUPS, 5, ListGroupsRequest(types_filter=["share"])).groups
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
    (answer,) = client.ask(delete.DELETE_SHARE_GROUP_OFFSETS, 0, request).responses
    assert ErrorCode(answer.error_code).name == "NONE"
    assert offsets(client, group) == []
    assert deleted(client, group) == "NONE"


def reset(client: RawClient, group: str, topic: Topic, offset: int) -> str:
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    wanted = alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[partition])
    request = alter.AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted])
    response = client.ask(alter.ALTER_SHARE_GROUP_OFFSETS, 0, request)
    return ErrorCode(response.error_code or response.responses[0].partitions[0].error_code).name


def deleted(client: RawClient, group: str) -> str:
    (result,) = client.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group])).results
    return ErrorCode(result.error_code).name
