"""A running broker with an authorizer: what clients see, and when they lose access.

Every path that answers without the general pipeline has a test that fails if it does not check rights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.base.denials import SAMPLES_MAX
from penstock.broker.fetch.repeated_client import RepeatedClientFetches
from penstock.metadata.image import ROLE
from penstock.model.errors import ErrorCode
from penstock.model.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.security.acls import Operation, PatternType, ResourceType
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.wire.apis.fetch import FETCH, FetchRequest, FetchResponse, PartitionData, ReplicaState
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.apis.produce import PRODUCE
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    fetch_request,
    new_name,
    produce,
    produce_request,
    until,
    values_in,
    wanted,
)

OP, TOPIC, CLUSTER = Operation, ResourceType.TOPIC, ResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_ID = bytes(16)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerOnDisk]:
    with on_disk(MemoryFiles(), **CONFIG) as started:
        yield started


@pytest.fixture(scope="module")
def admin(running: BrokerOnDisk) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def client(running: BrokerOnDisk, admin: Admin) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected
    admin.revoke()


@pytest.fixture
def topic(admin: Admin) -> Topic:
    return create_topic(admin)


def fetch_of(topic: Topic, offset: int = 0, **settings: Any) -> FetchRequest:
    return fetch_request([(topic, [wanted(offset)])], version=16, **settings)


def answer(response: FetchResponse) -> PartitionData:
    ((partition,),) = [t.partitions for t in response.responses]
    return partition


def metadata(client: RawClient, *names: str, **settings: Any) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    settings = {"allow_auto_topic_creation": False, **settings}
    return client.call(METADATA, 12, MetadataRequest(topics=topics, **settings))


def memo_of(running: BrokerOnDisk, client: RawClient) -> RepeatedClientFetches:
    """The requests that the broker has learned of a connection."""
    peer = "{}:{}".format(*client.socket.getsockname())
    (memo,) = [
        known.memo for known in running.broker.stages.listening.server.connections if known.peer == peer
    ]
    assert isinstance(memo, RepeatedClientFetches)
    return memo


# -- what a client sees


def test_metadata_does_not_separate_missing_from_forbidden(
    client: RawClient, admin: Admin, topic: Topic
) -> None:
    there, missing = metadata(client, topic.name, "missing").topics
    shown = [(t.error_code, t.topic_id, t.partitions, t.is_internal) for t in (there, missing)]
    assert shown == [(DENIED, NO_ID, [], False)] * 2
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic.id)])
    (found,) = client.call(METADATA, 12, by_id).topics
    assert (found.error_code, found.name) == (DENIED, None)
    assert metadata(client).topics == []
    assert metadata(client).brokers
    admin.allow(OP.DESCRIBE, TOPIC, topic.name)
    assert [t.name for t in metadata(client).topics] == [topic.name]


def test_a_list_of_denied_topics_is_not_a_list_of_all_topics(client: RawClient, topic: Topic) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])
    assert [t.error_code for t in client.call(METADATA, 0, request).topics] == [DENIED]
    pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic.name)])
    described = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, pages)
    assert [(t.error_code, t.topic_id) for t in described.topics] == [(DENIED, NO_ID)]
    everything = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest())
    assert everything.topics == []


def test_authorized_operations(client: RawClient, admin: Admin, topic: Topic) -> None:
    admin.allow(OP.READ, TOPIC, topic.name)
    response = metadata(
        client,
        topic.name,
        include_topic_authorized_operations=True,
    )
    assert response.topics[0].topic_authorized_operations == 1 << OP.READ | 1 << OP.DESCRIBE
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.call(DESCRIBE_CLUSTER, 1, request).cluster_authorized_operations == 0
    admin.allow(OP.DESCRIBE, CLUSTER, "kafka-cluster")
    found = client.call(DESCRIBE_CLUSTER, 1, request).cluster_authorized_operations
    assert found == 1 << OP.DESCRIBE
    not_requested = client.call(DESCRIBE_CLUSTER, 1, DescribeClusterRequest()).cluster_authorized_operations
    assert not_requested == -(2**31)


def test_automatic_creation_needs_create(client: RawClient, admin: Admin) -> None:
    name = new_name()
    admin.allow(OP.DESCRIBE, TOPIC, name)
    (found,) = metadata(client, name, allow_auto_topic_creation=True).topics
    assert found.error_code == DENIED
    admin.allow(OP.CREATE, TOPIC, name)
    (found,) = metadata(client, name, allow_auto_topic_creation=True).topics
    assert found.error_code == ErrorCode.NONE


def test_acls_are_described_to_the_administrator_only(client: RawClient, admin: Admin) -> None:
    every = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    assert client.call(DESCRIBE_ACLS, 3, every).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    found = admin.call(DESCRIBE_ACLS, 3, every)
    assert {resource.resource_name for resource in found.resources} == {"*", "kafka-cluster"}


def test_members_of_a_role_have_its_rights(client: RawClient, admin: Admin, topic: Topic) -> None:
    admin.allow(OP.DESCRIBE, TOPIC, topic.name, principal="Role:readers")

    def member(operation: int, name: str = "User:ANONYMOUS", sender: RawClient = admin) -> int:
        change = AlterableConfig(name=name, config_operation=operation, value="")
        role = AlterConfigsResource(resource_type=ROLE, resource_name="readers", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[role])
        return sender.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code

    add, remove = 0, 1
    assert member(add, sender=client) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert member(add, "Role:other") == ErrorCode.INVALID_CONFIG
    assert metadata(client, topic.name).topics[0].error_code == DENIED
    assert member(add) == ErrorCode.NONE
    assert metadata(client, topic.name).topics[0].error_code == ErrorCode.NONE
    assert member(remove) == ErrorCode.NONE
    assert metadata(client, topic.name).topics[0].error_code == DENIED


def test_denials_and_changes_are_audited(client: RawClient, admin: Admin, events: Events) -> None:
    topic = create_topic(admin)
    metadata(client, topic.name)
    (_, changed), *_ = events.of("metadata_changed")
    assert (changed["api"], changed["host"], changed["class_uid"]) == ("CreateTopics", "127.0.0.2", 6003)
    (_, denied), *_ = events.of("access_denied")
    assert (denied["api"], denied["operation"], denied["resource"]) == ("Metadata", "DESCRIBE", topic.name)
    metadata(client)
    assert len(events.of("access_denied")) == 1, "a list that is filtered is not audited"


def test_a_request_has_one_event_for_all_its_denials(
    running: BrokerOnDisk, client: RawClient, topic: Topic, events: Events
) -> None:
    """Each name was an event: 20,000 denied names were 20,000 lines."""
    names = [new_name() for _ in range(300)]
    counted = running.broker.stages.listening.audit.denials
    before = counted["DESCRIBE", "TOPIC"], counted["DELETE", "TOPIC"], counted["READ", "TOPIC"]
    metadata(client, *names)
    deletions = [DeleteTopicState(name=name) for name in names]
    client.call(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=deletions, timeout_ms=5000))
    partitions = [wanted(0, partition=n) for n in range(3)]
    client.call(FETCH, 16, fetch_request([(topic, partitions)], version=16, max_wait_ms=0))
    described, deleted, fetched = [fields for _, fields in events.of("access_denied")]
    assert (described["api"], described["denials"]) == ("Metadata", 300)
    (kind,) = described["denied"]
    assert (kind["operation"], kind["resource_type"], kind["count"]) == ("DESCRIBE", "TOPIC", 300)
    assert len(kind["resources"]) == SAMPLES_MAX and set(kind["resources"]) < set(names)
    assert (deleted["api"], deleted["denials"]) == ("DeleteTopics", 300)
    assert (fetched["api"], fetched["denials"], fetched["resource"]) == ("Fetch", 3, topic.name)
    after = counted["DESCRIBE", "TOPIC"], counted["DELETE", "TOPIC"], counted["READ", "TOPIC"]
    assert [new - old for new, old in zip(after, before, strict=True)] == [300, 300, 3]


def test_a_request_that_is_served_in_slices_has_one_event(client: RawClient, events: Events) -> None:
    """20,000 denied names wrote as many lines, until the pipe of the log was full."""
    metadata(client, *(f"t{n}" for n in range(20_000)))
    ((_, denied),) = events.of("access_denied")
    (kind,) = denied["denied"]
    assert denied["denials"] == kind["count"] == 20_000
    assert kind["resources"] == [f"t{n}" for n in range(5)]


def test_deleted_data_is_audited(client: RawClient, admin: Admin, events: Events) -> None:
    topic = create_topic(admin)
    records = DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0)])
    request = DeleteRecordsRequest(topics=[records], timeout_ms=5000)

    def delete(by: RawClient) -> int:
        code: int = by.call(DELETE_RECORDS, 2, request).topics[0].partitions[0].error_code
        return code

    assert delete(client) == DENIED
    until(lambda: delete(admin) == ErrorCode.NONE)
    admin.call(DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["nobody"]))
    ((_, changed),) = events.of("data_changed")
    assert (changed["api"], changed["host"]) == ("DeleteRecords", "127.0.0.2")
    assert changed["resources"] == [{"type": "TOPIC", "name": topic.name, "changes": ["0"]}]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("key_type", [0, 1])
def test_a_denied_find_coordinator_creates_no_topic(
    client: RawClient, running: BrokerOnDisk, version: int, key_type: int
) -> None:
    request = FindCoordinatorRequest(key="k", key_type=key_type, coordinator_keys=["k"])
    response = client.call(FIND_COORDINATOR, version, request)
    found = response.coordinators[0] if version >= 4 else response
    codes = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert found.error_code == codes[key_type]
    assert not running.broker.stages.cluster.image.topics.keys() & {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}


def test_a_regular_expression_matches_only_topics_that_may_be_described(
    client: RawClient, admin: Admin, running: BrokerOnDisk
) -> None:
    name = new_name()
    topics = [create_topic(admin, name=f"{name}-{i}") for i in range(2)]
    admin.allow(OP.READ, ResourceType.GROUP, name)
    admin.allow(OP.DESCRIBE, ResourceType.GROUP, name)
    admin.allow(OP.READ, TOPIC, topics[0].name)
    client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[name]))
    request = ConsumerGroupHeartbeatRequest(
        group_id=name,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=f"{name}-.*",
        topic_partitions=[],
    )
    assigned: set[bytes] = set()
    while not assigned:
        response = client.call(CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert response.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if response.assignment is not None:
            assigned = {each.topic_id for each in response.assignment.topic_partitions}
    assert assigned == {topics[0].id}


# -- produce


@pytest.mark.parametrize("version", [12, 13])
def test_produce_needs_write(client: RawClient, admin: Admin, topic: Topic, version: int) -> None:
    batch = batch_of([b"a"])
    assert produce(client, topic, batch, version=version).error_code == DENIED
    admin.allow(OP.WRITE, TOPIC, topic.name)
    assert produce(client, topic, batch, version=version).error_code == ErrorCode.NONE
    admin.allow(OP.WRITE, TOPIC, topic.name[:-1], deny=True, pattern=PatternType.PREFIXED)
    assert produce(client, topic, batch, version=version).error_code == DENIED


def test_produce_without_acks_that_is_denied_closes_the_connection(
    running: BrokerOnDisk, admin: Admin, topic: Topic
) -> None:
    with RawClient(running.bootstrap) as client:
        request = produce_request(topic, batch_of([b"a"]), acks=0, version=12)
        client.send(PRODUCE, 12, request, answered=False)
        assert client.is_closed()


# -- fetch: rights end with the next request at the latest


def test_a_fetch_that_waits_loses_access_with_the_acl(client: RawClient, admin: Admin, topic: Topic) -> None:
    admin.allow(OP.READ, TOPIC, topic.name)
    client.send(FETCH, 16, fetch_of(topic, max_wait_ms=30_000))
    other = create_topic(admin)
    append(admin, other, b"the wait has begun")
    assert admin.revoke(topic.name) == 1
    append(admin, topic, b"secret")
    found = answer(client.receive())
    assert found.error_code == DENIED
    assert not found.records


def test_a_repeated_fetch_loses_access_with_the_acl(
    client: RawClient, admin: Admin, topic: Topic, running: BrokerOnDisk
) -> None:
    admin.allow(OP.READ, TOPIC, topic.name)
    for value in (b"a", b"b", b"c", b"d"):
        offset = append(admin, topic, value)
        assert values_in(answer(client.call(FETCH, 16, fetch_of(topic, offset, max_wait_ms=5000)))) == [value]
    assert memo_of(running, client).last is not None
    append(admin, topic, b"secret")
    assert admin.revoke(topic.name) == 1
    assert answer(client.call(FETCH, 16, fetch_of(topic, 4, max_wait_ms=5000))).error_code == DENIED
    admin.allow(OP.READ, TOPIC, topic.name)
    assert values_in(answer(client.call(FETCH, 16, fetch_of(topic, 4, max_wait_ms=5000)))) == [b"secret"]


def test_a_repeated_fetch_that_waits_loses_access_with_the_acl(
    client: RawClient, admin: Admin, topic: Topic, running: BrokerOnDisk
) -> None:
    admin.allow(OP.READ, TOPIC, topic.name)
    for value in (b"a", b"b", b"c"):
        offset = append(admin, topic, value)
        client.call(FETCH, 16, fetch_of(topic, offset, max_wait_ms=30_000))
    client.send(FETCH, 16, fetch_of(topic, 3, max_wait_ms=30_000))
    memo = memo_of(running, client)
    until(lambda: memo.last is not None and memo.last.is_waiting)
    admin.revoke(topic.name)
    append(admin, topic, b"secret")
    assert answer(client.receive()).error_code == DENIED


def test_a_fetch_session_loses_access_with_the_acl(client: RawClient, admin: Admin, topic: Topic) -> None:
    admin.allow(OP.READ, TOPIC, topic.name)
    append(admin, topic, b"a")
    first = client.call(FETCH, 16, fetch_of(topic, session_epoch=0))
    assert first.session_id
    admin.revoke(topic.name)
    incremental = FetchRequest(
        session_id=first.session_id, session_epoch=1, max_bytes=1 << 20, min_bytes=1, max_wait_ms=0
    )
    found = answer(client.call(FETCH, 16, incremental))
    assert found.error_code == DENIED
    assert not found.records


@pytest.mark.parametrize("version", [12, 16])
def test_a_denied_partition_does_not_keep_others_from_waiting(
    client: RawClient, admin: Admin, topic: Topic, version: int
) -> None:
    other = create_topic(admin)
    admin.allow(OP.READ, TOPIC, topic.name)
    request = fetch_request([(topic, [wanted(0)]), (other, [wanted(0)])], version=version, max_wait_ms=30_000)
    client.send(FETCH, version, request)
    append(admin, topic, b"a")
    response: Any = client.receive()
    codes = {p.error_code for t in response.responses for p in t.partitions}
    assert codes == {ErrorCode.NONE, DENIED}


def test_a_repeated_fetch_with_a_replica_id_needs_cluster_action_every_time(
    client: RawClient, admin: Admin, topic: Topic
) -> None:
    """Read on the topic is not enough (CVE-2018-1288)."""
    admin.allow(OP.READ, TOPIC, topic.name)
    append(admin, topic, b"a")
    request = fetch_of(topic)
    request.replica_state = ReplicaState(replica_id=7, replica_epoch=1)
    for _ in range(4):
        assert answer(client.call(FETCH, 16, request)).error_code == DENIED
