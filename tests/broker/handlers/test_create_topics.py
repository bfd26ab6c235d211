"""CreateTopics: what makes a topic, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID
from penstock.testing import broker
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    create_topic,
    delete_topic,
    describe_topic,
    edge_versions,
    every_version,
    new_name,
    request_topic,
    topic_exists,
)

NODE = 1
VERSIONS = pytest.mark.parametrize("version", every_version(CREATE_TOPICS))
EDGES = pytest.mark.parametrize("version", edge_versions(CREATE_TOPICS))


def create_assigned(
    client: RawClient,
    assignments: Mapping[int, Sequence[int]],
    version: int = CREATE_TOPICS.max_version,
    partitions: int = -1,
    replication_factor: int = -1,
) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=new_name("assigned"),
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in assignments.items()
        ],
    )
    return client.call(CREATE_TOPICS, version, CreateTopicsRequest(topics=[topic])).topics[0]


@VERSIONS
def test_a_topic_is_created(client: RawClient, version: int) -> None:
    name = new_name()

    result = request_topic(client, name, partitions=3, version=version)

    assert (result.name, result.error_code, result.error_message) == (name, ErrorCode.NONE, None)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs
        assert {c.name: c.value for c in result.configs}["cleanup.policy"] == "delete"
        assert result.topic_config_error_code == ErrorCode.NONE
    if version >= 7:
        assert result.topic_id not in (NO_TOPIC_ID, bytes(15) + b"\x01")


@VERSIONS
def test_validating_creates_nothing(client: RawClient, version: int) -> None:
    name = new_name()

    result = request_topic(client, name, partitions=3, version=version, validate_only=True)

    assert result.error_code == ErrorCode.NONE
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs
    assert not topic_exists(client, name)


@EDGES
def test_validate_only_finds_the_errors_of_a_creation(client: RawClient, topic: Topic, version: int) -> None:
    again = request_topic(client, topic.name, version=version, validate_only=True)
    wrong = request_topic(client, new_name(), 1, {"retention.ms": "x"}, version, validate_only=True)

    assert (again.error_code, wrong.error_code) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_CONFIG,
    )


@EDGES
def test_a_topic_that_exists_is_not_created_again(client: RawClient, topic: Topic, version: int) -> None:
    result = request_topic(client, topic.name, version=version)

    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.error_message


@EDGES
@pytest.mark.parametrize(
    "configs",
    [
        {"no.such.config": "1"},
        {"retention.ms": "soon"},
        {"cleanup.policy": "shred"},
        {"compression.type": "rar"},
        {"min.insync.replicas": "0"},
        {"segment.bytes": "10"},
        {"retention.ms": ""},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"max.message.bytes": "-1"},
        {"message.timestamp.type": "Yesterday"},
    ],
    ids=str,
)
def test_a_config_that_is_wrong_is_an_invalid_config(
    client: RawClient, version: int, configs: Mapping[str, str]
) -> None:
    name = new_name()

    result = request_topic(client, name, configs=configs, version=version)

    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message
    assert not topic_exists(client, name)


@EDGES
def test_a_config_without_a_value_is_an_invalid_config(client: RawClient, version: int) -> None:
    nothing = CreatableTopicConfig(name="retention.ms", value=None)
    topic = CreatableTopic(name=new_name(), num_partitions=1, replication_factor=1, configs=[nothing])

    (result,) = client.call(CREATE_TOPICS, version, CreateTopicsRequest(topics=[topic])).topics

    assert result.error_code == ErrorCode.INVALID_CONFIG


@EDGES
@pytest.mark.parametrize("partitions", [0, -2, -100])
def test_a_number_of_partitions_that_cannot_be(client: RawClient, version: int, partitions: int) -> None:
    result = request_topic(client, new_name(), partitions=partitions, version=version)

    assert result.error_code == ErrorCode.INVALID_PARTITIONS


def test_the_partitions_of_one_request_are_limited(client: RawClient) -> None:
    names = [new_name(), new_name()]
    topics = [CreatableTopic(name=name, num_partitions=5001, replication_factor=1) for name in names]

    answer = client.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=10_000))

    assert [topic.error_code for topic in answer.topics] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not topic_exists(client, names[0])


@EDGES
@pytest.mark.parametrize("factor", [0, -2, 2, 3])
def test_a_replication_factor_that_cannot_be(client: RawClient, version: int, factor: int) -> None:
    name = new_name()

    result = request_topic(client, name, replication_factor=factor, version=version)

    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert not topic_exists(client, name)


@pytest.mark.parametrize("version", [4, 5, 7])
def test_the_broker_chooses_the_numbers_that_a_client_leaves_out(client: RawClient, version: int) -> None:
    name = new_name()

    result = request_topic(client, name, partitions=-1, replication_factor=-1, version=version)

    assert result.error_code == ErrorCode.NONE
    assert len(describe_topic(client, name).partitions) == 1


@EDGES
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\nb", "a:b", "a,b"])
def test_names_that_no_topic_may_have(client: RawClient, version: int, name: str) -> None:
    assert request_topic(client, name, version=version).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["x" * 249, "...", "A-Z_0.9", "-", "_", "-1"])
def test_names_that_a_topic_may_have(client: RawClient, name: str) -> None:
    assert request_topic(client, name, validate_only=True).error_code == ErrorCode.NONE


@EDGES
def test_names_that_differ_only_in_dots_and_underscores_collide(client: RawClient, version: int) -> None:
    stem = new_name("collision")
    create_topic(client, f"{stem}.a_b")

    for name in (f"{stem}_a_b", f"{stem}.a.b", f"{stem}_a.b"):
        assert request_topic(client, name, version=version).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert request_topic(client, f"{stem}.a-b", version=version).error_code == ErrorCode.NONE


@penstock_only  # Kafka makes both
def test_names_that_collide_in_one_request(client: RawClient) -> None:
    """The first is made; it is one change of the metadata for both."""
    dotted = new_name("same.name")
    names = [dotted, dotted.replace(".", "_"), new_name("other")]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names],
        timeout_ms=10_000,
    )

    results = {t.name: t.error_code for t in client.call(CREATE_TOPICS, 7, request).topics}

    assert sorted(results.values()) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert results[names[2]] == ErrorCode.NONE


@penstock_only  # Kafka takes any number, and keeps it
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("__consumer_offsets", "offsets.topic.num.partitions"),
        ("__transaction_state", "transaction.state.log.num.partitions"),
        ("__share_group_state", "share.coordinator.state.topic.num.partitions"),
    ],
)
def test_a_coordinators_topic_has_the_partitions_that_it_is_configured_with(name: str, config: str) -> None:
    with broker(config={config: "7"}) as running, RawClient(running.bootstrap) as client:
        for partitions in (1, 8, -1):
            refused = request_topic(client, name, partitions)
            assert refused.error_code == ErrorCode.INVALID_PARTITIONS
            assert config in (refused.error_message or "")

        assert request_topic(client, name, 7).error_code == ErrorCode.NONE


def test_a_collision_ends_with_the_topic_it_collided_with(client: RawClient) -> None:
    stem = new_name("collision")
    topic = create_topic(client, f"{stem}.a")
    delete_topic(client, topic)

    assert request_topic(client, f"{stem}_a").error_code == ErrorCode.NONE


@EDGES
def test_a_name_twice_in_a_request_is_refused_and_the_others_are_created(
    client: RawClient, version: int
) -> None:
    twice, once = new_name("twice"), new_name("once")
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in (twice, once, twice)]

    results = client.call(CREATE_TOPICS, version, CreateTopicsRequest(topics=topics)).topics

    assert {r.name: r.error_code for r in results} == {
        twice: ErrorCode.INVALID_REQUEST,
        once: ErrorCode.NONE,
    }
    assert not topic_exists(client, twice)
    assert topic_exists(client, once)


@EDGES
def test_the_clusters_own_topic_is_not_for_clients(client: RawClient, version: int) -> None:
    assert (
        request_topic(client, "__cluster_metadata", version=version).error_code == ErrorCode.INVALID_REQUEST
    )


@EDGES
def test_replicas_can_be_assigned_by_hand(client: RawClient, version: int) -> None:
    result = create_assigned(client, {0: [NODE], 1: [NODE]}, version)

    assert result.error_code == ErrorCode.NONE
    assert topic_exists(client, result.name)
    assert [p.replica_nodes for p in describe_topic(client, result.name).partitions] == [[NODE], [NODE]]


@pytest.mark.parametrize("version", edge_versions(CREATE_TOPICS))
@pytest.mark.parametrize(
    "assignments",
    [{0: [NODE + 1]}, {0: []}, {0: [NODE, NODE]}, {1: [NODE]}, {0: [NODE], 2: [NODE]}],
    ids=str,
)
def test_assignments_that_cannot_be(
    client: RawClient, version: int, assignments: Mapping[int, Sequence[int]]
) -> None:
    result = create_assigned(client, assignments, version)

    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not topic_exists(client, result.name)


def test_the_first_of_several_reasons_is_kafkas(client: RawClient, topic: Topic) -> None:
    def refused(name: str, config: str) -> ErrorCode:
        wrong = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[NODE + 1])] * 2,
            configs=[CreatableTopicConfig(name="max.message.bytes", value=config)],
        )
        (result,) = client.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wrong])).topics
        return ErrorCode(result.error_code)

    assert refused(topic.name, "x") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused(new_name("wrong"), "x") == ErrorCode.INVALID_CONFIG
    assert refused(new_name("wrong"), "1000") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unplaceable = request_topic(
        client, new_name("wrong"), replication_factor=7, configs={"max.message.bytes": "x"}
    )
    assert unplaceable.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(("partitions", "factor"), [(1, -1), (-1, 1)])
def test_assignments_and_numbers_exclude_each_other(client: RawClient, partitions: int, factor: int) -> None:
    result = create_assigned(client, {0: [NODE]}, partitions=partitions, replication_factor=factor)

    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_for_nothing_is_answered_with_nothing(client: RawClient) -> None:
    assert client.call(CREATE_TOPICS, 7, CreateTopicsRequest()).topics == []


def test_configs_of_a_new_topic_are_described_with_their_source(client: RawClient) -> None:
    result = request_topic(client, new_name(), configs={"retention.ms": "1234"})

    assert result.configs is not None
    shown = {c.name: (c.value, c.config_source) for c in result.configs}
    assert shown["retention.ms"] == ("1234", 1)
    assert shown["segment.ms"] == ("604800000", 5)
