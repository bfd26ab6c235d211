"""OffsetCommit, OffsetFetch and OffsetDelete over the raw protocol, in every version."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
)
from penstock.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
)
from tests.broker.handlers.group_requests import BATCHED, BY_ID, commit, fetch
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    delete_topic,
    every_version,
    new_name,
    produce,
    record,
)


@pytest.fixture(autouse=True)
def coordinator(client: RawClient) -> None:
    """The offsets topic exists."""
    client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["any"]))


@pytest.fixture
def group() -> str:
    return new_name("group")


def test_clients_cannot_write_to_the_offsets_topic(client: RawClient) -> None:
    offsets = Topic("__consumer_offsets", NO_TOPIC_ID)
    answer = produce(client, offsets, batch_of([record(b"value", b"key")]), version=9)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", every_version(OFFSET_COMMIT))
def test_commit_in_every_version(client: RawClient, topic: Topic, group: str, version: int) -> None:
    assert commit(client, version, group, topic) == ErrorCode.NONE
    assert fetch(client, BATCHED, group, topic) == [(7, "note", 0)]
    assert commit(client, version, group, topic, index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nowhere = Topic("nowhere", topic.id[::-1])  # type: ignore[arg-type]
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, version, group, nowhere) == missing


@pytest.mark.parametrize("version", every_version(OFFSET_FETCH))
def test_fetch_in_every_version(client: RawClient, topic: Topic, group: str, version: int) -> None:
    assert fetch(client, version, group, topic) == [(-1, "", 0)]
    commit(client, 9, group, topic)
    assert fetch(client, version, group, topic) == [(7, "note", 0)]
    if version >= 2:
        assert fetch(client, version, group, None) == [(7, "note", 0)]
        assert fetch(client, version, "an unknown group", None) == []


def test_fetch_by_an_unknown_topic_id(client: RawClient, topic: Topic, group: str) -> None:
    other = Topic(topic.name, topic.id[::-1])  # type: ignore[arg-type]
    assert fetch(client, BY_ID, group, other) == [(-1, "", ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_recreated_topic_has_no_offsets(client: RawClient, group: str) -> None:
    topic = create_topic(client)
    commit(client, 9, group, topic)
    delete_topic(client, topic)
    again = create_topic(client, topic.name)
    assert fetch(client, 9, group, again) == [(-1, "", 0)]


def test_delete_offsets(client: RawClient, topic: Topic, group: str) -> None:
    def delete(name: str, index: int) -> tuple[int, list[int]]:
        partitions = [OffsetDeleteRequestPartition(partition_index=index)]
        wanted = OffsetDeleteRequestTopic(name=name, partitions=partitions)
        response = client.call(OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=[wanted]))
        return response.error_code, [p.error_code for t in response.topics for p in t.partitions]

    assert delete(topic.name, 0) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    commit(client, 9, group, topic)
    assert delete(topic.name, 9) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete("nowhere", 0) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete(topic.name, 0) == (0, [ErrorCode.NONE])
    assert fetch(client, BATCHED, group, topic) == [(-1, "", 0)]
