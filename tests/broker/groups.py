"""Requests about a group to the brokers of a cluster, as a client makes them."""

from __future__ import annotations

import asyncio

from penstock.model.errors import ErrorCode
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, Coordinator, FindCoordinatorRequest
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
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.broker.nodes import Cluster
from tests.broker.replication import TOPIC

GROUP = "group"
_PATIENCE_S = 60.0
SOON = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def coordinator(nodes: Cluster, node: int) -> Coordinator:
    """Where `node` sends members of the group."""
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    (found,) = (await nodes.call(node, FIND_COORDINATOR, request)).coordinators
    return found


async def commit(nodes: Cluster, node: int, offset: int) -> ErrorCode:
    topic_id = nodes[node].stages.cluster.image.topics[TOPIC].id
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
    ((answer,),) = [t.partitions for t in (await nodes.call(node, OFFSET_COMMIT, request)).topics]
    return ErrorCode(answer.error_code)


async def commit_when_it_can(nodes: Cluster, node: int, offset: int) -> None:
    """Commit with retries: a new coordinator may not know of its election yet, or may be loading."""
    async with asyncio.timeout(_PATIENCE_S):
        while (error := await commit(nodes, node, offset)) in SOON:  # noqa: ASYNC110 - a client can only retry
            await asyncio.sleep(0.01)
    assert error == ErrorCode.NONE


async def offsets(nodes: Cluster, node: int) -> OffsetFetchResponseGroup:
    topic_id = nodes[node].stages.cluster.image.topics[TOPIC].id
    topic = OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
    (group,) = (await nodes.call(node, OFFSET_FETCH, request)).groups
    return group


async def committed(nodes: Cluster, node: int) -> int:
    async with asyncio.timeout(_PATIENCE_S):
        while (group := await offsets(nodes, node)).error_code in SOON:  # noqa: ASYNC110 - a client can only retry
            await asyncio.sleep(0.01)
    assert group.error_code == ErrorCode.NONE
    ((answer,),) = [t.partitions for t in group.topics]
    return answer.committed_offset
