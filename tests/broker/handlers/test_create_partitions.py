"""CreatePartitions: topics that grow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    create_topic,
    describe_topic,
    edge_versions,
    every_version,
    read_all,
    until,
)

NODE = 1


def grow(
    client: RawClient,
    name: str,
    count: int,
    version: int = CREATE_PARTITIONS.max_version,
    assignments: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    assigned = None
    if assignments is not None:
        assigned = [CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in assignments]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=assigned)],
        timeout_ms=5000,
        validate_only=validate_only,
    )
    (result,) = client.call(CREATE_PARTITIONS, version, request).results
    assert result.name == name
    return result


GROW_VERSIONS = pytest.mark.parametrize("version", every_version(CREATE_PARTITIONS))


@GROW_VERSIONS
def test_partitions_are_added_and_old_data_stays(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    append(client, topic, b"0")

    result = grow(client, topic.name, 3, version)

    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    until(lambda: len(describe_topic(client, topic.name).partitions) == 3)
    assert [r.value for r in read_all(client, topic)] == [b"0"]


@penstock_only  # in Kafka the new partition needs a moment
def test_new_partitions_take_records_at_once(client: RawClient, topic: Topic) -> None:
    grow(client, topic.name, 2)

    append(client, topic, b"new", partition=1)

    assert [r.value for r in read_all(client, topic, partition=1)] == [b"new"]


@GROW_VERSIONS
@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_the_number_of_partitions_only_grows(client: RawClient, version: int, count: int) -> None:
    topic = create_topic(client, partitions=2)

    result = grow(client, topic.name, count, version)

    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert result.error_message
    assert len(describe_topic(client, topic.name).partitions) == 2


@penstock_only  # Kafka answers UNKNOWN_SERVER_ERROR
@pytest.mark.parametrize("count", [10_003, 2**31 - 1])
def test_a_small_request_cannot_create_unlimited_partitions(client: RawClient, count: int) -> None:
    topic = create_topic(client, partitions=2)

    assert grow(client, topic.name, count).error_code == ErrorCode.POLICY_VIOLATION
    assert len(describe_topic(client, topic.name).partitions) == 2


@GROW_VERSIONS
def test_an_unknown_topic_does_not_grow(client: RawClient, version: int) -> None:
    assert grow(client, "no-such-topic", 3, version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@GROW_VERSIONS
def test_validating_adds_nothing(client: RawClient, topic: Topic, version: int) -> None:
    good = grow(client, topic.name, 3, version, validate_only=True)
    bad = grow(client, topic.name, 1, version, validate_only=True)

    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    assert len(describe_topic(client, topic.name).partitions) == 1


@GROW_VERSIONS
def test_new_partitions_can_be_assigned_by_hand(client: RawClient, topic: Topic, version: int) -> None:
    result = grow(client, topic.name, 3, version, [[NODE], [NODE]])

    assert result.error_code == ErrorCode.NONE
    until(lambda: len(describe_topic(client, topic.name).partitions) == 3)


@pytest.mark.parametrize("version", edge_versions(CREATE_PARTITIONS))
@pytest.mark.parametrize(
    "assignments",
    [[], [[NODE]], [[NODE]] * 3, [[NODE], [NODE + 1]], [[NODE], []], [[NODE], [NODE, NODE]]],
    ids=str,
)
def test_assignments_of_new_partitions_that_cannot_be(
    client: RawClient, topic: Topic, version: int, assignments: Sequence[Sequence[int]]
) -> None:
    result = grow(client, topic.name, 3, version, assignments)

    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(describe_topic(client, topic.name).partitions) == 1


@pytest.mark.parametrize("version", edge_versions(CREATE_PARTITIONS))
def test_a_topic_named_twice_does_not_grow(client: RawClient, topic: Topic, version: int) -> None:
    twice = [CreatePartitionsTopic(name=topic.name, count=count, assignments=None) for count in (2, 3)]

    results = client.call(CREATE_PARTITIONS, version, CreatePartitionsRequest(topics=twice)).results

    assert {(r.name, r.error_code) for r in results} == {(topic.name, ErrorCode.INVALID_REQUEST)}
    assert len(describe_topic(client, topic.name).partitions) == 1
