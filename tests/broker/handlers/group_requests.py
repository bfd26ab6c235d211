"""JoinGroup, OffsetCommit and OffsetFetch over the raw protocol, in any version."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID
from penstock.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
)
from tests.groups.shard_driver import subscription

__all__ = ["BATCHED", "BY_ID", "commit", "fetch", "join"]

BY_ID = 10
BATCHED = 8


def join(client: RawClient, version: int, group: str) -> JoinGroupResponse:
    """Join, in two steps if the version hands out the member id first."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
    )
    response = client.call(JOIN_GROUP, version, request)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = response.member_id
        response = client.call(JOIN_GROUP, version, request)
    return response


def commit(client: RawClient, version: int, group: str, topic: Topic, index: int = 0, offset: int = 7) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata="note"
    )
    wanted = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[partition])
    response = client.call(OFFSET_COMMIT, version, OffsetCommitRequest(group_id=group, topics=[wanted]))
    (answered,) = response.topics
    assert answered.topic_id == (topic.id if version >= BY_ID else NO_TOPIC_ID)
    (only,) = answered.partitions
    return only.error_code


def fetch(
    client: RawClient, version: int, group: str, topic: Topic | None
) -> list[tuple[int, str | None, int]]:
    """(offset, metadata, error) of each partition of `topic`, or of all topics."""
    if version >= BATCHED:
        topics = None
        if topic is not None:
            topics = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.id, partition_indexes=[0])]
        response = client.call(
            OFFSET_FETCH,
            version,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]),
        )
        (answered,) = response.groups
        assert answered.error_code == ErrorCode.NONE
        return [(p.committed_offset, p.metadata, p.error_code) for t in answered.topics for p in t.partitions]
    old = None if topic is None else [OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])]
    response = client.call(OFFSET_FETCH, version, OffsetFetchRequest(group_id=group, topics=old))
    assert response.error_code == ErrorCode.NONE
    return [(p.committed_offset, p.metadata, p.error_code) for t in response.topics for p in t.partitions]
