"""Large requests are divided into parts, and what the parts are answered is joined as if there were none."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from penstock.broker.request.division import (
    PART_ELEMENTS,
    Division,
    continued_levels,
    is_excessive,
    parts,
    refused,
)
from penstock.broker.request.divisions import DIVISIONS, division_of
from penstock.broker.request.joining import Join
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis import APIS
from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
)
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from penstock.wire.apis.describe_client_quotas import EntityData
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages import encode_response
from penstock.wire.schema import StructType


def _division(api: Api[Any, Any], version: int) -> Division:
    found = division_of(api, version)
    assert found is not None
    return found


@pytest.mark.parametrize("key", sorted(DIVISIONS))
def test_the_table_names_lists_that_exist(key: int) -> None:
    api = APIS[key]
    for _, division in DIVISIONS[key]:
        for cls, levels in ((api.request, division.request), (api.response, division.response)):
            at: Any = cls
            for level in levels:
                fields = {field.name: field for field in at.fields}
                assert fields[level.name].kind == "array", level
                at = fields[level.name].of
                for name in level.key:
                    assert isinstance(at, StructType) and name in {field.name for field in at.fields}


def test_an_api_that_is_not_in_the_table_is_not_divided() -> None:
    assert division_of(FETCH, 12) is None


def _topic(name: str, partitions: int) -> ListOffsetsTopic:
    return ListOffsetsTopic(
        name=name, partitions=[ListOffsetsPartition(partition_index=index) for index in range(partitions)]
    )


def test_parts_have_all_elements_once_and_in_order() -> None:
    topics = [
        ListOffsetsTopic(
            name=f"t{i}", partitions=[ListOffsetsPartition(partition_index=p) for p in range(i % 7)]
        )
        for i in range(200)
    ]
    topics[50].partitions = [ListOffsetsPartition(partition_index=p) for p in range(1000)]
    found = list(parts(_division(LIST_OFFSETS, 7), ListOffsetsRequest(replica_id=-1, topics=topics)))
    assert all(part.replica_id == -1 for part in found)
    assert max(sum(1 + len(t.partitions) for t in part.topics) for part in found) <= PART_ELEMENTS + 1
    divided = [(t.name, p.partition_index) for part in found for t in part.topics for p in t.partitions]
    assert divided == [(t.name, p.partition_index) for t in topics for p in t.partitions]
    names = list(chain.from_iterable([t.name for t in part.topics] for part in found))
    assert list(dict.fromkeys(names)) == [t.name for t in topics]


def test_a_request_for_everything_is_one_part() -> None:
    request = MetadataRequest(topics=None)
    assert list(parts(_division(METADATA, 12), request)) == [request]


def test_a_topic_that_was_divided_is_answered_once() -> None:
    division = _division(LIST_OFFSETS, 7)
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=p) for p in range(950)]
            )
        ]
    )
    join = Join(division)
    for part in parts(division, request):
        (topic,) = part.topics
        answers = [ListOffsetsPartitionResponse(partition_index=p.partition_index) for p in topic.partitions]
        join.add(
            ListOffsetsResponse(
                throttle_time_ms=3, topics=[ListOffsetsTopicResponse(name=topic.name, partitions=answers)]
            )
        )
    (answer,) = join.response.topics
    assert [p.partition_index for p in answer.partitions] == list(range(950))
    assert join.response.throttle_time_ms == 3


def test_groups_and_topics_that_were_divided_are_answered_once() -> None:
    division = _division(OFFSET_FETCH, 9)
    topics = [
        OffsetFetchRequestTopics(name="a", partition_indexes=list(range(250))),
        OffsetFetchRequestTopics(name="b", partition_indexes=list(range(3))),
    ]
    groups = [OffsetFetchRequestGroup(group_id=g, topics=topics) for g in ("one", "two")]
    join = Join(division)
    for part in parts(division, OffsetFetchRequest(groups=groups)):
        continued = continued_levels(division, part)
        join.add(OffsetFetchResponse(groups=[_fetched(group) for group in part.groups]), continued)
    assert join.response.groups == [_fetched(group) for group in groups]


def test_groups_and_topics_that_were_requested_twice_are_answered_twice() -> None:
    """Kafka answers each of them, however large the request is; they were joined."""
    division = _division(OFFSET_FETCH, 9)
    long = OffsetFetchRequestTopics(name="a", partition_indexes=list(range(250)))
    short = OffsetFetchRequestTopics(name="a", partition_indexes=[7])
    groups = [OffsetFetchRequestGroup(group_id="one", topics=[long, long, short, short])] * 2
    groups += [OffsetFetchRequestGroup(group_id="one", topics=[short])] * 300
    join = Join(division)
    for part in parts(division, OffsetFetchRequest(groups=groups)):
        continued = continued_levels(division, part)
        join.add(OffsetFetchResponse(groups=[_fetched(group) for group in part.groups]), continued)
    assert join.response.groups == [_fetched(group) for group in groups]


def test_a_piece_behind_a_failed_one_is_no_part_of_another_topic() -> None:
    division = _division(OFFSET_FETCH, 9)
    join = Join(division)
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[1]) for name in "ab"]
    first, second = (OffsetFetchRequestGroup(group_id="one", topics=[topic]) for topic in topics)
    join.add(OffsetFetchResponse(groups=[_fetched(first)]))
    join.add(OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="one", error_code=15)]), 1)
    join.add(OffsetFetchResponse(groups=[_fetched(second)]), 2)
    (group,) = join.response.groups
    assert group.error_code == 15
    assert [topic.name for topic in group.topics] == ["a", "b"]


def _fetched(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(partition_index=index) for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ],
    )


def test_a_topic_that_was_requested_twice_is_in_the_metadata_once() -> None:
    division = _division(METADATA, 12)
    names = [f"t{i % 300}" for i in range(900)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    join = Join(division)
    for part in parts(division, request):
        join.add(MetadataResponse(topics=[MetadataResponseTopic(name=t.name) for t in part.topics]))
    assert [topic.name for topic in join.response.topics] == names[:300]


def test_an_error_of_one_part_is_that_of_the_response() -> None:
    join = Join(_division(OFFSET_FETCH, 7))
    join.add(OffsetFetchResponse())
    join.add(OffsetFetchResponse(error_code=16))
    join.add(OffsetFetchResponse())
    assert join.response.error_code == 16


def test_a_request_without_a_response_has_none() -> None:
    join = Join(_division(LIST_OFFSETS, 7))
    join.add(None)
    assert join.response is None


def _created(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1) for name in names])


def test_duplicates_are_in_one_part_and_few() -> None:
    """The handler refuses a name that comes twice, so it has to see both. Two are enough for that."""
    names = [name for number in range(300) for name in (f"t{number}", "twice")]
    found = [part for part in parts(_division(CREATE_TOPICS, 7), _created(*names)) if part is not None]
    assert max(len(part.topics) for part in found) <= 20
    with_it = [part for part in found if any(topic.name == "twice" for topic in part.topics)]
    assert [[topic.name for topic in part.topics] for part in with_it] == [["twice", "twice"]]
    assert sum(len(part.topics) for part in found) == 302


@pytest.mark.parametrize("count", [2, 3, 20, 21, 22, 40, 41, 101])
def test_duplicates_that_are_answered_one_by_one_are_never_alone(count: int) -> None:
    resources = [AlterConfigsResource(resource_type=2, resource_name="t")] * count
    request = IncrementalAlterConfigsRequest(resources=resources)
    found = [p for p in parts(_division(INCREMENTAL_ALTER_CONFIGS, 1), request) if p is not None]
    assert sum(len(part.resources) for part in found) == count
    assert all(2 <= len(part.resources) <= 21 for part in found)


def test_long_names_count_for_more() -> None:
    division = _division(DESCRIBE_GROUPS, 5)
    request = DescribeGroupsRequest(groups=["x" * 20_000] * 50)
    assert max(len(part.groups) for part in parts(division, request)) == 1
    assert sum(len(part.groups) for part in parts(division, request)) == 50


@pytest.mark.parametrize("topics", [None, []])
def test_an_element_with_a_long_name_and_nothing_to_divide_is_kept(topics: list[Any] | None) -> None:
    groups = [OffsetFetchRequestGroup(group_id="g" * 30_000, topics=topics)]
    groups += [OffsetFetchRequestGroup(group_id=f"g{i}", topics=topics) for i in range(250)]
    divided = parts(_division(OFFSET_FETCH, 8), OffsetFetchRequest(groups=groups))
    assert list(chain.from_iterable(part.groups for part in divided)) == groups


def test_more_elements_than_a_change_may_have_are_refused_with_the_error_of_kafka() -> None:
    division = _division(CREATE_TOPICS, 7)
    assert not is_excessive(division, _created(*map(str, range(10_000))))
    assert is_excessive(division, _created(*map(str, range(10_001))))
    large = _created("a", "b")
    large.topics[0].num_partitions = 10_000
    large.topics[0].configs = [CreatableTopicConfig(name="retention.ms", value="1")]
    assert is_excessive(division, large)
    response = refused(CREATE_TOPICS, division, large)
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", ErrorCode.POLICY_VIOLATION),
        ("b", ErrorCode.POLICY_VIOLATION),
    ]
    # As in Kafka: nothing was created.
    assert [(each.num_partitions, each.replication_factor) for each in response.topics] == [(-1, -1)] * 2
    assert encode_response(CREATE_TOPICS, 7, 1, response)
    deletion = refused(DELETE_TOPICS, _division(DELETE_TOPICS, 5), DeleteTopicsRequest(topic_names=["x"]))
    assert [each.name for each in deletion.responses] == ["x"]


def test_the_refusal_of_quotas_names_their_entities() -> None:
    """Clients find their results by the entity, which was missing."""
    entity = [EntityData(entity_type="user", entity_name="bob")]
    part = AlterClientQuotasRequest(entries=[AlteredEntry(entity=entity)])
    response = refused(ALTER_CLIENT_QUOTAS, _division(ALTER_CLIENT_QUOTAS, 1), part)
    (entry,) = response.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", "bob")]
    assert encode_response(ALTER_CLIENT_QUOTAS, 1, 1, response)


@pytest.mark.parametrize(("count", "excessive"), [(10_000, False), (10_001, True)])
def test_a_request_may_not_change_more_configs_than_one_of_kafkas_changes(
    count: int, excessive: bool
) -> None:
    resource = AlterConfigsResource(
        resource_type=4, configs=[AlterableConfig(name=f"plugin.{i}", value="1") for i in range(count)]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    assert is_excessive(_division(INCREMENTAL_ALTER_CONFIGS, 1), request) is excessive
