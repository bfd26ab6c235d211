"""Large requests and responses at a running broker: answers, order, quotas, time on the event loop."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from copy import copy
from threading import Event
from time import monotonic
from typing import Any, cast

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages import encode_request
from penstock.wire.schema import Struct
from tests.broker.large_topics import topic_image
from tests.broker.metered_clients import assert_muted, quota
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, create_topic, new_name, read_all
from tests.broker.stalls import LIMIT_S, assert_brief, cpu, scale
from tests.waiting import eventually

_MANY = 3000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={"auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap, client_id=new_name("client")) as connected:
        yield connected


def _unknown(number: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"none-{i}") for i in range(number)])


def test_a_large_request_is_answered_as_a_small_one(client: RawClient) -> None:
    small = client.call(METADATA, 12, _unknown(50))
    large = client.call(METADATA, 12, _unknown(_MANY))
    assert large.topics[:50] == small.topics
    assert [topic.name for topic in large.topics] == [f"none-{i}" for i in range(_MANY)]
    assert (large.brokers, large.controller_id, large.cluster_id) == (
        small.brokers,
        small.controller_id,
        small.cluster_id,
    )


def test_resources_that_are_named_twice_are_described_twice(client: RawClient) -> None:
    """As in Kafka, in a large request as in a small one. A config that is named twice is there once."""
    name = create_topic(client)
    one = DescribeConfigsResource(
        resource_type=2, resource_name=name.name, configuration_keys=["retention.ms"] * 30
    )
    small = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[copy(one), copy(one)]))
    large = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[copy(one)] * 40))
    assert len(small.results) == 2
    assert [config.name for config in small.results[0].configs] == ["retention.ms"]
    assert large.results == small.results * 20


def test_requests_behind_a_large_one_wait_for_it(client: RawClient) -> None:
    for request in (_unknown(_MANY), _unknown(3), _unknown(2 * _MANY)):
        client.send(METADATA, 12, request)
    client.send(API_VERSIONS, 0, ApiVersionsRequest())
    received = [client.receive() for _ in range(4)]
    sizes = [len(response.topics) for response in received if isinstance(response, MetadataResponse)]
    assert sizes == [_MANY, 3, 2 * _MANY]
    assert isinstance(received[3], ApiVersionsResponse)


def _new_topic(name: str, configs: list[CreatableTopicConfig]) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)


@pytest.mark.parametrize("is_metered", [False, True])
def test_a_small_request_does_not_overtake_one_that_waits_for_its_turn(
    running: BrokerThread, client: RawClient, is_metered: bool
) -> None:
    """Both were in one read. The deletion was refused, and then the topics were created."""
    # Only the creation is longer than a request that is served at once.
    configs = [CreatableTopicConfig(name="retention.ms", value="3600000")]
    rounds = [[f"{is_metered:d}-{number}-{index}" for index in range(20)] for number in range(3)]
    with RawClient(running.bootstrap, client_id="admin") as admin, ExitStack() as quotas:
        if is_metered:
            quotas.enter_context(quota(admin, client, "request_percentage", 10_000.0))
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        for names in rounds:
            topics = [_new_topic(name, configs) for name in names]
            client.send(CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            client.send(DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=names, timeout_ms=30_000))
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        for _ in rounds:
            created, deleted = client.receive(), client.receive()
            assert {topic.error_code for topic in created.topics} == {0}
            assert {topic.error_code for topic in deleted.responses} == {0}


def test_a_large_response_of_a_small_request(running: BrokerThread, client: RawClient) -> None:
    topic = create_topic(client, partitions=400)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
    client.send(METADATA, 12, request)
    client.send(API_VERSIONS, 0, ApiVersionsRequest())
    response = client.receive()
    assert isinstance(response, MetadataResponse)
    assert [p.partition_index for p in response.topics[0].partitions] == list(range(400))
    assert isinstance(client.receive(), ApiVersionsResponse)


def test_partitions_of_one_large_topic_are_answered_together(client: RawClient) -> None:
    topic = create_topic(client, partitions=400)
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(400)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)])
    (answer,) = client.call(LIST_OFFSETS, 7, request).topics
    assert [(p.partition_index, p.error_code, p.offset) for p in answer.partitions] == [
        (index, ErrorCode.NONE, 0) for index in range(400)
    ]


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_produce_request_of_many_partitions(client: RawClient, acks: int) -> None:
    """Records outlive the receive buffer, and a part of one partition has a response of another form."""
    topic = create_topic(client)
    records = memoryview(batch_of([b"value"]))
    unknown = [
        TopicProduceData(name=f"none-{i}", partition_data=[PartitionProduceData(index=0, records=records)])
        for i in range(1001)
    ]
    known = TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[*unknown, known])
    response = client.call(PRODUCE, 9, request)
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1001 + [ErrorCode.NONE]
    assert [record.value for record in read_all(client, topic)] == [b"value"]


def test_a_large_request_is_charged_to_the_request_quota(running: BrokerThread, client: RawClient) -> None:
    with (
        RawClient(running.bootstrap, client_id="admin") as admin,
        quota(admin, client, "request_percentage", 0.01),
    ):
        began = monotonic()
        response = client.call(METADATA, 12, _unknown(_MANY))
        assert len(response.topics) == _MANY
        assert response.throttle_time_ms > 0
        assert_muted(client, began, response.throttle_time_ms)


def test_large_requests_of_a_client_with_a_quota(running: BrokerThread, client: RawClient) -> None:
    topic = create_topic(client, partitions=400)
    with (
        RawClient(running.bootstrap, client_id="admin") as admin,
        quota(admin, client, "request_percentage", 100.0),
    ):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
        assert len(client.call(METADATA, 12, request).topics[0].partitions) == 400
        assert len(client.call(METADATA, 12, _unknown(_MANY)).topics) == _MANY


def test_many_configs_of_a_broker_are_taken_over_at_once(running: BrokerThread, client: RawClient) -> None:
    def changed(operation: int) -> None:
        configs = [
            AlterableConfig(name=f"plugin.{i}", config_operation=operation, value="1") for i in range(900)
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=4, configs=configs)]
        )
        response = client.call(INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert [each.error_code for each in response.responses] == [0]

    try:
        # More than a second when each config was taken over with all others.
        assert cpu(running, lambda: changed(0)) < 0.25 * scale()
    finally:
        changed(1)


def _join(group: str, size: int) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_000_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def test_a_large_request_that_waits_takes_no_memory_of_other_requests(
    running: BrokerThread, client: RawClient
) -> None:
    group = new_name("group")
    client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))
    first = client.call(JOIN_GROUP, 3, _join(group, 10))
    assert not first.error_code
    pool = running.broker.stages.listening.server.pool
    with client.another() as second:
        # It waits for the first member to join again.
        second.send(JOIN_GROUP, 3, _join(group, 300_000))
        describe = DescribeGroupsRequest(groups=[group])
        eventually(
            lambda: client.call(DESCRIBE_GROUPS, 5, describe).groups[0].group_state == "PreparingRebalance"
        )
        assert pool.held == 0


def test_a_client_that_leaves_ends_its_large_request(running: BrokerThread, client: RawClient) -> None:
    with RawClient(running.bootstrap) as leaving:
        leaving.send(METADATA, 12, _unknown(50_000))
    assert len(client.call(METADATA, 12, _unknown(3)).topics) == 3


def _frames() -> dict[str, tuple[Api[Any, Any], int, Struct]]:
    groups = [OffsetFetchRequestGroup(group_id=f"group-{i}", topics=[]) for i in range(20_000)]
    keys = [f"group-{i}" for i in range(20_000)]
    return {
        "Metadata": (METADATA, 12, _unknown(20_000)),
        "FindCoordinator": (FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=keys)),
        "OffsetFetch": (OFFSET_FETCH, 9, OffsetFetchRequest(groups=groups)),
    }


@pytest.mark.parametrize("name", sorted(_frames()))
def test_a_large_request_does_not_hold_the_loop(running: BrokerThread, client: RawClient, name: str) -> None:
    api, version, request = _frames()[name]
    assert_brief(running, lambda: client.call(api, version, request))


def test_metadata_of_everything_does_not_hold_the_loop(running: BrokerThread, client: RawClient) -> None:
    """A request of a few bytes with a response of all topics."""
    name = new_name()
    running.broker.stages.cluster.image.topics[name] = topic_image(name, 30_000)
    assert_brief(running, lambda: client.call(METADATA, 12, MetadataRequest(topics=None)))
    topics = {topic.name: topic for topic in client.call(METADATA, 12, MetadataRequest(topics=None)).topics}
    del running.broker.stages.cluster.image.topics[name]
    assert [p.partition_index for p in topics[name].partitions] == list(range(30_000))


def test_many_clients_with_large_requests_leave_time_to_others(
    running: BrokerThread, client: RawClient
) -> None:
    """Twelve clients do not get twelve slices between two polls of the sockets."""
    clients = [RawClient(running.bootstrap, client_id=new_name("large")) for _ in range(12)]

    def send() -> None:
        for each in clients:
            each.send(METADATA, 12, _unknown(4 * _MANY))
        for each in clients:
            assert len(each.receive().topics) == 4 * _MANY

    try:
        assert_brief(running, send)
    finally:
        for each in clients:
            each.close()


def test_pipelined_requests_leave_time_to_others(running: BrokerThread, client: RawClient) -> None:
    """What arrived in one read is not served in one go if that takes long."""

    def send() -> None:
        for _ in range(250):
            client.send(METADATA, 12, _unknown(150))
        for _ in range(250):
            assert len(client.receive().topics) == 150

    assert_brief(running, send)


def test_many_clients_with_pipelined_requests_leave_time_to_others(
    running: BrokerThread, client: RawClient
) -> None:
    """A share is of all connections: 60 of them held the loop for 180 ms, with 60 requests each."""
    clients = [RawClient(running.bootstrap, client_id="c") for _ in range(60)]
    (head, *_), request = clients, ApiVersionsRequest()
    head.call(API_VERSIONS, 0, request)
    frames = b"".join(cast("list[bytes]", encode_request(API_VERSIONS, 0, 1, "c", request))) * 60

    def send() -> None:
        _at_once(running, [(each, frames) for each in clients])
        for each in clients:
            _skip(each, 60)

    try:
        assert_brief(running, send, 2 * LIMIT_S)
    finally:
        for each in clients:
            each.close()


@pytest.mark.parametrize("quota_name", ["", "request_percentage"])
@pytest.mark.parametrize("name", ["Metadata", "ListOffsets", "DescribeGroups", "a few names"])
def test_one_request_on_each_of_many_connections_leaves_time_to_others(
    running: BrokerThread, client: RawClient, name: str, quota_name: str
) -> None:
    """One poll found 200 requests, none of which was large: together they held the loop for 230 ms."""
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(195)]
    requests: dict[str, tuple[Api[Any, Any], int, Struct]] = {
        "Metadata": (METADATA, 12, _unknown(195)),
        "ListOffsets": (LIST_OFFSETS, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(partitions=wanted)])),
        "DescribeGroups": (DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[f"g{i}" for i in range(195)])),
        "a few names": (DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"] * 45)),
    }
    api, version, request = requests[name]
    frame = b"".join(cast("list[bytes]", encode_request(api, version, 1, client.client_id, request)))
    clients = [RawClient(running.bootstrap) for _ in range(200)]

    def send() -> None:
        _at_once(running, [(each, frame) for each in clients])
        for each in clients:
            _skip(each, 1)

    try:
        with RawClient(running.bootstrap) as admin, ExitStack() as stack:
            if quota_name:
                stack.enter_context(quota(admin, client, quota_name, 10_000.0))
            assert_brief(running, send)
    finally:
        for each in clients:
            each.close()


def _at_once(running: BrokerThread, sent: list[tuple[RawClient, bytes]]) -> None:
    """Send while the event loop is held, so that one poll finds everything."""
    arrived = Event()
    running.broker.stages.listening.server.loop.call_soon_threadsafe(arrived.wait)
    for client, frames in sent:
        client.socket.sendall(frames)
    arrived.set()


def _skip(client: RawClient, responses: int) -> None:
    stream = client.socket.makefile("rb")
    for _ in range(responses):
        stream.read(int.from_bytes(stream.read(4)))


def test_a_large_frame_is_not_copied(running: BrokerThread, client: RawClient) -> None:
    """One of 90 MB held the loop for 77 ms, most of them for copies."""
    topics = [MetadataRequestTopic(name=f"{i}".ljust(32_000, "n")) for i in range(1900)]

    def call() -> None:
        response = client.call(METADATA, 12, MetadataRequest(topics=topics))
        assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert [topic.name for topic in response.topics] == [topic.name for topic in topics]

    assert_brief(running, call)


def test_a_large_produce_request_is_appended_in_parts(running: BrokerThread, client: RawClient) -> None:
    """One of 80 MB, with a batch of 1 MB for each partition, held the loop for 160 ms."""
    topic = create_topic(client, partitions=40)
    batch = batch_of([bytes(1_000_000)])
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index in range(40)]
    request = ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic.name, partition_data=data)]
    )
    times = 0

    def call() -> None:
        nonlocal times
        (found,) = client.call(PRODUCE, 9, request).responses
        answers = [(each.index, each.error_code, each.base_offset) for each in found.partition_responses]
        assert answers == [(index, ErrorCode.NONE, times) for index in range(40)]
        times += 1

    assert_brief(running, call)
    assert [each.value for each in read_all(client, topic, partition=39)] == [bytes(1_000_000)] * times
