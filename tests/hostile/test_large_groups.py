"""Groups with much state, many partitions or committed offsets: a request of few bytes concerns all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from penstock.groups.shard import GroupShard
from penstock.metadata.image import TopicImage
from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.apis.share_group_heartbeat import (
    SHARE_GROUP_HEARTBEAT,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.large_topics import topic_image
from tests.broker.raw import RawClient
from tests.broker.requests import new_name
from tests.broker.stalls import LIMIT_S, assert_brief, cpu, is_brief, measured, scale
from tests.waiting import eventually

_PARTITIONS = 60_000
_OFFSETS = 10_000
_SHARED = 8_000
_TRIES = 6


@contextmanager
def _coordinator() -> Iterator[BrokerThread]:
    """A broker whose coordinator has loaded its only partition."""
    with broker(
        config={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    ) as found:
        with RawClient(found.bootstrap) as client:
            find = FindCoordinatorRequest(coordinator_keys=["group"])
            eventually(
                lambda: client.call(FIND_COORDINATOR, 4, find).coordinators[0].error_code == ErrorCode.NONE
            )
        yield found


def _know(running: BrokerThread, topic: TopicImage) -> None:
    """Have the broker know a topic that the metadata does not have."""
    image = running.broker.stages.cluster.image
    image.topics[topic.name] = image.topics_by_id[topic.id] = topic


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with _coordinator() as found:
        yield found


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap, client_id=new_name("client")) as connected:
        yield connected


@pytest.fixture(scope="module")
def topic(running: BrokerThread) -> str:
    name = new_name()
    image = topic_image(name, _PARTITIONS)
    _know(running, image)
    return name


def _beat(client: RawClient, group: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **more)
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return response


def _assigned(client: RawClient, topic: str) -> list[TopicPartitions]:
    """Join a new group, and send heartbeats until there is an assignment."""
    group = new_name("group")
    response = _beat(
        client, group, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[topic], topic_partitions=[]
    )
    while response.assignment is None or not response.assignment.topic_partitions:
        response = _beat(client, group, response.member_epoch)
    return response.assignment.topic_partitions


def test_a_member_with_many_partitions(running: BrokerThread, client: RawClient, topic: str) -> None:
    """Its target and its first assignment took 54 to 67 ms at once."""

    def assign() -> None:
        (found,) = _assigned(client, topic)
        assert found.partitions == list(range(_PARTITIONS))

    assert_brief(running, assign)


def _many_topics(running: BrokerThread, number: int, partitions: int) -> list[str]:
    names = [new_name() for _ in range(number)]
    for index, name in enumerate(names):
        _know(running, topic_image(name, partitions, f"{name[-4:]}-{index}".encode()))
    return names


def test_a_member_with_partitions_of_many_topics(running: BrokerThread, client: RawClient) -> None:
    """The turn that gave a member 100,000 partitions of 5,000 topics took 45 ms."""
    names = _many_topics(running, 5000, 20)

    def assign() -> None:
        group = new_name("group")
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, "topic_partitions": []}
        response = _beat(client, group, 0, **more)
        while response.assignment is None or not response.assignment.topic_partitions:
            response = _beat(client, group, response.member_epoch)
        assert sum(len(t.partitions) for t in response.assignment.topic_partitions) == 100_000

    assert_brief(running, assign)


def test_a_static_member_with_many_partitions_rejoins(running: BrokerThread, client: RawClient) -> None:
    """To leave took 60 ms, and to rejoin with another member id 190 ms."""
    names = _many_topics(running, 2500, 20)
    members = map("m{}".format, count())

    def join(group: str) -> str:
        member = next(members)
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, "topic_partitions": []}
        response = _beat_as(client, group, member, 0, **more)
        while response.assignment is None or not response.assignment.topic_partitions:
            response = _beat_as(client, group, member, response.member_epoch)
        assert sum(len(t.partitions) for t in response.assignment.topic_partitions) == 50_000
        return member

    def rejoin() -> None:
        group = new_name("group")
        _beat_as(client, group, join(group), -2)
        join(group)

    assert_brief(running, rejoin)


def _beat_as(
    client: RawClient, group: str, member: str, epoch: int, **more: Any
) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of a static member."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, instance_id="i", member_epoch=epoch, **more
    )
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return response


def _commit_many(client: RawClient, topic: str, **more: Any) -> str:
    """A group with many committed offsets."""
    group = new_name("group")
    for start in range(0, _OFFSETS, 100):
        indexes = range(start, start + 100)
        partitions = [OffsetCommitRequestPartition(partition_index=i, committed_offset=i) for i in indexes]
        wanted = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=wanted, **more)
        response = client.call(OFFSET_COMMIT, 4 if more else 8, request)
        assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.NONE}
    return group


def _fetch_all(client: RawClient, group: str, version: int = 9) -> dict[int, int]:
    request = OffsetFetchRequest(group_id=group, topics=None)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    response = client.call(OFFSET_FETCH, version, request)
    topics = response.groups[0].topics if version >= 8 else response.topics
    return {p.partition_index: p.committed_offset for topic in topics for p in topic.partitions}


@pytest.mark.parametrize("version", [7, 9, 10])
def test_all_offsets_of_a_group(running: BrokerThread, client: RawClient, topic: str, version: int) -> None:
    """10,000 offsets took 20 to 32 ms."""
    group = _commit_many(client, topic)
    assert _fetch_all(client, group, version) == {index: index for index in range(_OFFSETS)}
    assert_brief(running, lambda: _fetch_all(client, group, version), LIMIT_S / 2)


def test_the_deletion_of_a_group_with_many_offsets(
    running: BrokerThread, client: RawClient, topic: str
) -> None:
    """It took 43 ms: the tombstones were encoded and appended at once."""
    held = []
    for _ in range(_TRIES):
        group = _commit_many(client, topic)
        with measured(running) as stalls:
            request = DeleteGroupsRequest(groups_names=[group])
            (result,) = client.call(DELETE_GROUPS, 2, request).results
        held.append(stalls.longest_s)
        assert result.error_code == ErrorCode.NONE
        assert _fetch_all(client, group) == {}
        _commit_one(client, group, topic)
        assert _fetch_all(client, group) == {3: 3}
        if is_brief(stalls):
            return
    pytest.fail(f"the loop was held for {held} s")


def _commit_one(client: RawClient, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=3, committed_offset=3)
    wanted = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[wanted])
    client.call(OFFSET_COMMIT, 8, request)


def test_the_expiry_of_many_offsets(running: BrokerThread, client: RawClient, topic: str) -> None:
    """A timer looked at all offsets of all groups at once, and deleted those that had expired."""
    loop, runtime = (
        running.broker.stages.listening.server.loop,
        running.broker.stages.coordinators.groups.runtime,
    )
    held = []
    for _ in range(_TRIES):
        group = _commit_many(client, topic, retention_time_ms=1)
        with measured(running) as stalls:
            loop.call_soon_threadsafe(runtime.notify_all, GroupShard.expire_offsets)
            _wait_until_expired(client, group)
        held.append(stalls.longest_s)
        if is_brief(stalls):
            return
    pytest.fail(f"the loop was held for {held} s")


def _wait_until_expired(client: RawClient, group: str) -> None:
    eventually(lambda: not _fetch_all(client, group))


def test_the_load_of_many_offsets() -> None:
    """A step replayed a mebibyte of the log: 10,000 records.

    In a broker of its own, whose log has these records only: the result does not depend on other tests.
    """
    with _coordinator() as running, RawClient(running.bootstrap) as client:
        image = topic_image("offsets", _PARTITIONS)
        _know(running, image)
        group = _commit_many(client, image.name)
        loop, runtime = (
            running.broker.stages.listening.server.loop,
            running.broker.stages.coordinators.groups.runtime,
        )

        def reload() -> None:
            runtime.resigned(0)
            runtime.elected(0)

        def load() -> None:
            loop.call_soon_threadsafe(reload)
            eventually(lambda: len(_fetch_all(client, group)) == _OFFSETS)

        assert_brief(running, load, LIMIT_S / 2)


def _join(group: str, size: int, member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )


def test_a_join_request_that_is_far_too_large(running: BrokerThread, client: RawClient) -> None:
    """40 MB took 92 ms, most of them for copies."""

    def join() -> None:
        response = client.call(JOIN_GROUP, 3, _join("group", 40 << 20))
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    assert_brief(running, join)


def test_metadata_that_no_record_can_have(running: BrokerThread, client: RawClient) -> None:
    """The shard decided on a record that its log refused, and lost all groups that were rebalancing."""
    shard = running.broker.stages.coordinators.groups.runtime.shard(0)
    group = new_name("group")
    response = client.call(JOIN_GROUP, 3, _join(group, 2 << 20))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert running.broker.stages.coordinators.groups.runtime.shard(0) is shard


def test_an_assignment_that_no_record_can_have(running: BrokerThread, client: RawClient) -> None:
    """Only its request fails, as in Kafka: the shard was discarded, with the requests of all groups."""
    shard = running.broker.stages.coordinators.groups.runtime.shard(0)
    group = new_name("group")
    joined = client.call(JOIN_GROUP, 3, _join(group, 10))
    for size, code in ((2 << 20, ErrorCode.UNKNOWN_SERVER_ERROR), (1000, ErrorCode.NONE)):
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(size))
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        )
        assert client.call(SYNC_GROUP, 3, request).error_code == code
        joined = client.call(JOIN_GROUP, 3, _join(group, 10, joined.member_id))
        assert joined.error_code == ErrorCode.NONE
    assert running.broker.stages.coordinators.groups.runtime.shard(0) is shard


def test_more_partitions_than_the_record_of_a_member_can_have(
    running: BrokerThread, client: RawClient
) -> None:
    shard = running.broker.stages.coordinators.groups.runtime.shard(0)
    name = new_name()
    image = topic_image(name, 140_000, b"u")
    _know(running, image)
    request = ConsumerGroupHeartbeatRequest(
        group_id=new_name("group"),
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )
    response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert running.broker.stages.coordinators.groups.runtime.shard(0) is shard


def _heartbeat(
    group: str, member: str, epoch: int, topic: str | None = None
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat, or with a topic the first one."""
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
    if topic is not None:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names, request.topic_partitions = [topic], []
    return request


def test_one_member_with_more_partitions_than_its_record_can_have(
    running: BrokerThread, client: RawClient
) -> None:
    """The target was left out in silence, and computed again with each heartbeat: 2 s of CPU."""
    few, many, group = new_name(), new_name(), new_name("group")
    for name, partitions, id in ((few, 3, b"v"), (many, 140_000, b"w")):
        image = topic_image(name, partitions, id)
        _know(running, image)
    modest = client.call(CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat(group, "m", 0, few))
    greedy = client.call(CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat(group, "greedy", 0, many))

    def is_refused() -> bool:
        _beat(client, group, modest.member_epoch)
        request = _heartbeat(group, "greedy", greedy.member_epoch)
        response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
        return response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    eventually(is_refused)
    again = [cpu(running, lambda: [is_refused() for _ in range(10)]) for _ in range(_TRIES)]
    assert min(again) < LIMIT_S * scale(), again


def _share(
    client: RawClient, group: str, member: str, epoch: int, **more: Any
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
    response = client.call(SHARE_GROUP_HEARTBEAT, 1, request)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return response


def test_share_members_with_many_partitions(running: BrokerThread, client: RawClient) -> None:
    """A join took 700 ms, to create the state of all share partitions, and a target 140 ms."""
    name, group = new_name(), new_name("group")
    image = topic_image(name, _SHARED, b"x")
    _know(running, image)
    epochs = {"a": 0, "b": 0}
    has: dict[str, int] = {}

    def are_assigned() -> bool:
        for member, epoch in epochs.items():
            more = {} if epoch else {"subscribed_topic_names": [name]}
            response = _share(client, group, member, epoch, **more)
            epochs[member] = response.member_epoch
            if response.assignment is not None:
                has[member] = sum(len(t.partitions) for t in response.assignment.topic_partitions)
        return list(has.values()) == [_SHARED // 2, _SHARED // 2]

    with measured(running) as stalls:
        eventually(are_assigned)
    assert stalls.longest_s < LIMIT_S * scale(), stalls.longest_s


def test_a_share_member_with_partitions_of_many_topics(running: BrokerThread, client: RawClient) -> None:
    """The record of 100,000 share partitions of 5,000 topics took 70 ms, several times."""
    names = _many_topics(running, 3500, 2)

    def share() -> None:
        group = new_name("group")
        joined = _share(client, group, "m", 0, subscribed_topic_names=names)
        epochs = [joined.member_epoch]

        def is_assigned() -> bool:
            response = _share(client, group, "m", epochs[-1])
            epochs.append(response.member_epoch)
            topics = [] if response.assignment is None else response.assignment.topic_partitions
            return sum(len(t.partitions) for t in topics) == 7000

        eventually(is_assigned)

    assert_brief(running, share)
