"""Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.testing import broker
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.broker.conftest import penstock_only
from tests.broker.events import Events
from tests.broker.handlers.metadata_requests import call, request_one
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, edge_versions, every_version, new_name

ALL = pytest.mark.parametrize("version", every_version(METADATA))
NOT_REQUESTED = -(2**31)


@ALL
def test_a_topic_with_its_partitions_and_their_leader(client: RawClient, version: int) -> None:
    topic = create_topic(client, partitions=3)

    found = request_one(client, version, topic.name)

    assert (found.error_code, found.name, found.is_internal) == (ErrorCode.NONE, topic.name, False)
    assert sorted(p.partition_index for p in found.partitions) == [0, 1, 2]
    for partition in found.partitions:
        assert partition.error_code == ErrorCode.NONE
        assert partition.replica_nodes == partition.isr_nodes == [partition.leader_id]
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert found.topic_id == (topic.id if version >= 10 else NO_TOPIC_ID)


@ALL
def test_the_brokers_are_where_the_client_found_them(client: RawClient, version: int) -> None:
    response = call(client, version)

    host, _, port = client.address.rpartition(":")
    assert [(b.host, b.port) for b in response.brokers] == [(host, int(port))]
    if version >= 1:
        assert response.controller_id == response.brokers[0].node_id
    if version >= 2:
        assert response.cluster_id
        assert len(response.cluster_id) == 22


def test_in_version_0_no_topics_means_all(client: RawClient, topic: Topic) -> None:
    assert topic.name in {t.name for t in call(client, 0).topics}


@pytest.mark.parametrize("version", range(1, 14))
def test_from_version_1_on_null_means_all_and_none_means_none(
    client: RawClient, topic: Topic, version: int
) -> None:
    everything = client.call(METADATA, version, MetadataRequest(topics=None))

    assert topic.name in {t.name for t in everything.topics}
    assert call(client, version).topics == []


@pytest.mark.parametrize("version", range(4, 14))
def test_an_unknown_topic_is_unknown_where_it_may_not_be_created(client: RawClient, version: int) -> None:
    name = new_name()

    found = request_one(client, version, name)

    assert (found.error_code, found.name, found.partitions) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name,
        [],
    )
    assert name not in {t.name for t in client.call(METADATA, 12, MetadataRequest(topics=None)).topics}


@pytest.mark.parametrize("version", [1, 4, 13])
@pytest.mark.parametrize("name", ["no/slash", "..", "x" * 250, ""])
def test_a_name_that_no_topic_may_have_is_invalid(client: RawClient, version: int, name: str) -> None:
    assert request_one(client, version, name, create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_is_found_by_id(client: RawClient, topic: Topic, version: int) -> None:
    wanted = [MetadataRequestTopic(name=None, topic_id=topic.id)]

    (found,) = client.call(METADATA, version, MetadataRequest(topics=wanted)).topics

    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, topic.name, topic.id)
    assert len(found.partitions) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_an_unknown_id_has_no_name(client: RawClient, version: int) -> None:
    unknown = TopicId(b"\x07" * 16)
    wanted = [MetadataRequestTopic(name=None, topic_id=unknown)]

    (found,) = client.call(METADATA, version, MetadataRequest(topics=wanted)).topics

    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


@pytest.mark.parametrize("version", [8, 10, 13])
def test_operations_are_listed_on_request(client: RawClient, topic: Topic, version: int) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic.name)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )

    requested = client.call(METADATA, version, request)
    silent = call(client, version, topic.name)

    # alter, alter configs, create, delete, describe, describe configs, read, write
    assert requested.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert silent.topics[0].topic_authorized_operations == NOT_REQUESTED
    if version <= 10:
        assert requested.cluster_authorized_operations > 0
        assert silent.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", every_version(DESCRIBE_CLUSTER))
def test_the_cluster_describes_itself_as_metadata_does(client: RawClient, version: int) -> None:
    metadata = call(client, 12)

    cluster = client.call(DESCRIBE_CLUSTER, version, DescribeClusterRequest())

    assert cluster.error_code == ErrorCode.NONE
    assert cluster.cluster_id == metadata.cluster_id
    assert [(b.broker_id, b.host, b.port, b.rack) for b in cluster.brokers] == [
        (b.node_id, b.host, b.port, b.rack) for b in metadata.brokers
    ]
    assert cluster.controller_id in {b.broker_id for b in cluster.brokers}
    assert cluster.cluster_authorized_operations == NOT_REQUESTED
    assert not any(b.is_fenced for b in cluster.brokers)


@pytest.mark.parametrize("version", every_version(DESCRIBE_CLUSTER))
def test_the_operations_on_the_cluster_are_listed_on_request(client: RawClient, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)

    # alter, alter configs, cluster action, create, describe, describe configs, idempotent write
    operations = client.call(DESCRIBE_CLUSTER, version, request).cluster_authorized_operations
    assert operations == 0b1_1111_1010_0000


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_found_at_a_clients_listener(
    client: RawClient, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    response = client.call(DESCRIBE_CLUSTER, version, DescribeClusterRequest(endpoint_type=endpoint_type))

    assert (response.error_code, response.brokers) == (code, [])
    assert response.error_message


def describe(
    client: RawClient, *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return client.call(DESCRIBE_TOPIC_PARTITIONS, 0, request)


def test_topics_are_described_in_the_order_of_their_names(client: RawClient) -> None:
    prefix = new_name("order")
    topics = [create_topic(client, f"{prefix}-{letter}", partitions=2) for letter in "cab"]

    response = describe(client, *(t.name for t in topics))

    assert [t.name for t in response.topics] == sorted(t.name for t in topics)
    assert response.next_cursor is None
    for found in response.topics:
        assert found.error_code == ErrorCode.NONE
        assert [p.partition_index for p in found.partitions] == [0, 1]
        assert all(p.replica_nodes == p.isr_nodes == [p.leader_id] for p in found.partitions)
        assert {found.name: found.topic_id}.items() <= {t.name: t.id for t in topics}.items()


def test_an_unknown_topic_is_named_in_the_answer(client: RawClient, topic: Topic) -> None:
    response = describe(client, topic.name, "no-such-topic", "no/slash")

    codes = {t.name: t.error_code for t in response.topics}
    assert codes == {
        topic.name: ErrorCode.NONE,
        "no-such-topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert {t.topic_authorized_operations for t in response.topics} == {0b1101_1111_1000}


def test_a_limit_ends_an_answer_with_a_cursor_to_go_on_from(client: RawClient) -> None:
    prefix = new_name("cursor")
    names = [create_topic(client, f"{prefix}-{letter}", partitions=3).name for letter in "ab"]
    seen: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    rounds = 0
    while True:
        response = describe(client, *names, limit=2, cursor=cursor)
        seen += [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        rounds += 1
        cursor = response.next_cursor
        if cursor is None:
            break

    assert seen == [(name, index) for name in names for index in range(3)]
    assert rounds == 3


def test_a_cursor_starts_inside_a_topic(client: RawClient) -> None:
    topic = create_topic(client, partitions=5)

    response = describe(client, topic.name, cursor=Cursor(topic_name=topic.name, partition_index=3))

    assert [p.partition_index for p in response.topics[0].partitions] == [3, 4]


def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it(client: RawClient) -> None:
    prefix = new_name("zzz-gone")
    last = create_topic(client, f"{prefix}-z")

    response = describe(client, cursor=Cursor(topic_name=f"{prefix}-a", partition_index=3))

    assert (last.name, 1) in [(t.name, len(t.partitions)) for t in response.topics]


@pytest.mark.parametrize(("at", "index"), [("elsewhere", 0), (None, -1)])
def test_a_cursor_that_cannot_be_is_refused(
    client: RawClient, topic: Topic, at: str | None, index: int
) -> None:
    cursor = Cursor(topic_name=at or topic.name, partition_index=index)

    response = describe(client, topic.name, "no-such-topic", cursor=cursor)

    refused = [(topic.name, ErrorCode.INVALID_REQUEST), ("no-such-topic", ErrorCode.INVALID_REQUEST)]
    assert [(t.name, t.error_code) for t in response.topics] == refused
    assert {t.topic_authorized_operations for t in response.topics} == {NOT_REQUESTED}


def test_the_broker_limits_how_many_partitions_an_answer_describes() -> None:
    with (
        broker(config={"max.request.partition.size.limit": "2"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client, partitions=5)
        response = describe(client, topic.name)

    assert [p.partition_index for p in response.topics[0].partitions] == [0, 1]
    assert response.next_cursor == Cursor(topic_name=topic.name, partition_index=2)


def test_without_names_all_topics_are_described(client: RawClient, topic: Topic) -> None:
    assert topic.name in {t.name for t in describe(client).topics}


@pytest.mark.parametrize("version", edge_versions(METADATA))
def test_a_topic_named_twice_is_answered_once(client: RawClient, topic: Topic, version: int) -> None:
    other = new_name()

    requested = call(client, version, topic.name, other, topic.name, other)

    assert sorted(t.name or "" for t in requested.topics) == sorted([topic.name, other])


def test_ids_are_answered_once_and_names_beside_them_not_at_all(client: RawClient, topic: Topic) -> None:
    by_id = MetadataRequestTopic(name=None, topic_id=topic.id)
    wanted = [by_id, MetadataRequestTopic(name="no-such-topic"), by_id]

    found = client.call(METADATA, 13, MetadataRequest(topics=wanted)).topics

    assert [t.name for t in found] == [topic.name]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_that_a_version_has_room_but_no_use_for_are_refused(
    client: RawClient, topic: Topic, version: int
) -> None:
    wanted = [MetadataRequestTopic(name=None, topic_id=topic.id), MetadataRequestTopic(name=topic.name)]

    found = client.call(METADATA, version, MetadataRequest(topics=wanted)).topics

    assert [(t.name, t.topic_id, t.error_code) for t in found] == [
        ("", topic.id, ErrorCode.INVALID_REQUEST),
        (topic.name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST),
    ]


@penstock_only
def test_invalid_names_of_topics_to_create_do_not_flood_the_log(events: Events) -> None:
    names = [f"{number}!" + "x" * 30_000 for number in range(100)]
    with broker() as running, RawClient(running.bootstrap) as client:
        response = call(client, METADATA.max_version, *names, create=True)
    assert {found.error_code for found in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    logged = events.of("topic_not_created")
    assert len(logged) == 60
    assert max(len(str(value)) for _, fields in logged for value in fields.values()) == 256
