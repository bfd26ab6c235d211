"""Groups on a cluster: found through any broker, and their offsets survive the loss of their coordinator."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.partition import Partition
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
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC, described, make_topic
from tests.storage.logs import note_rot

GROUP = "group"
SOON = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def coordinator(nodes: Cluster, node: int) -> Coordinator:
    """Where `node` sends members of the group."""
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    (found,) = (await nodes.ask(node, FIND_COORDINATOR, request)).coordinators
    return found


async def commit(nodes: Cluster, node: int, offset: int) -> ErrorCode:
    topic_id = nodes[node].image.topics[TOPIC].id
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
    ((answer,),) = [t.partitions for t in (await nodes.ask(node, OFFSET_COMMIT, request)).topics]
    return ErrorCode(answer.error_code)


async def commit_when_it_can(nodes: Cluster, node: int, offset: int) -> None:
    """Commit as clients do: who has only just become coordinator does not know it yet, or has yet to load."""
    while (error := await commit(nodes, node, offset)) in SOON:  # noqa: ASYNC110 - a client can only ask
        await asyncio.sleep(0.01)
    assert error == ErrorCode.NONE


async def offsets(nodes: Cluster, node: int) -> OffsetFetchResponseGroup:
    topic_id = nodes[node].image.topics[TOPIC].id
    topic = OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
    (group,) = (await nodes.ask(node, OFFSET_FETCH, request)).groups
    return group


async def committed(nodes: Cluster, node: int) -> int:
    while (group := await offsets(nodes, node)).error_code in SOON:  # noqa: ASYNC110 - a client can only ask
        await asyncio.sleep(0.01)
    assert group.error_code == ErrorCode.NONE
    ((answer,),) = [t.partitions for t in group.topics]
    return answer.committed_offset


def test_offsets_survive_the_loss_of_their_coordinator() -> None:
    async def main() -> None:
        async with cluster(3, config={"offsets.topic.num.partitions": "3"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            found = await coordinator(nodes, 1)
            assert found.error_code == ErrorCode.NONE
            await eventually(
                lambda: all("__consumer_offsets" in b.image.topics for b in nodes.brokers.values())
            )
            assert [(await coordinator(nodes, node)).node_id for node in (2, 3)] == [found.node_id] * 2
            other = next(node for node in nodes.brokers if node != found.node_id)
            assert await commit(nodes, other, 7) == ErrorCode.NOT_COORDINATOR
            await commit_when_it_can(nodes, found.node_id, 42)
            await nodes.kill(found.node_id)
            left = next(iter(nodes.brokers.values()))
            offsets = left.image.topics["__consumer_offsets"].partitions[left.groups.partition_for(GROUP)]
            await eventually(lambda: offsets.leader in nodes.brokers)
            successor = offsets.leader
            await eventually(lambda: offsets.index in nodes[successor].groups.runtime)
            assert (await coordinator(nodes, left.node_id)).node_id == successor
            assert await committed(nodes, successor) == 42

    run(main())


def test_groups_first_used_while_a_broker_is_down_have_all_their_replicas() -> None:
    async def main() -> None:
        async with cluster(3, config={"offsets.topic.num.partitions": "1"}) as nodes:
            await nodes.kill(3)
            await eventually(lambda: all(b.image.brokers[3].fenced for b in nodes.brokers.values()))
            found = await coordinator(nodes, 1)
            assert found.node_id in (1, 2)
            partition = described(nodes[found.node_id], "__consumer_offsets")
            assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [1, 2])
            await make_topic(nodes, 1, 2)
            await commit_when_it_can(nodes, found.node_id, 42)
            await nodes.start(3)
            await eventually(lambda: sorted(partition.isr) == [1, 2, 3])
            assert offsets_partition(nodes, 3).log.end_offset == 1, "it has what was committed meanwhile"

    run(main())


def test_groups_wait_for_a_cluster_that_is_still_starting() -> None:
    """As in Kafka: with too few brokers registered there is no coordinator yet; clients ask again."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3], config={"offsets.topic.num.partitions": "1"})
        try:
            await nodes.start(1, 2)
            found = await coordinator(nodes, 1)
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            assert found.error_message is not None and "only 2 broker(s)" in found.error_message
            await nodes.start(3)
            assert (await coordinator(nodes, 1)).error_code == ErrorCode.NONE
            assert sorted(described(nodes[1], "__consumer_offsets").replicas) == [1, 2, 3]
        finally:
            await nodes.close()

    run(main())


def offsets_partition(nodes: Cluster, node: int) -> Partition:
    partition = nodes[node].partitions.find("__consumer_offsets", 0)
    assert isinstance(partition, Partition)
    return partition


def test_a_coordinator_whose_log_has_rotted_comes_back_when_it_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then members are told to wait: what is damaged here may be what they have committed."""
    monkeypatch.setattr("penstock.broker.coordinator_seat._RELOAD_LIMIT_S", 0.02)

    async def main() -> None:
        async with cluster(3, config={"offsets.topic.num.partitions": "1"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            leader = (await coordinator(nodes, 1)).node_id
            await commit_when_it_can(nodes, leader, 42)
            broker, partition = nodes[leader], offsets_partition(nodes, leader)
            # Followers hear with the next answer how far all is committed.
            await eventually(
                lambda: all(offsets_partition(nodes, node).log.high_watermark == 1 for node in nodes.brokers)
            )
            note_rot(partition.log, -1)
            broker.groups.resigned(0)
            broker.groups.elected(0)
            waits = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await commit(nodes, leader, 43) == waits
            await broker.scrubber.repair(partition)
            assert broker.metrics.corruption_repaired == 1
            assert await committed(nodes, leader) == 42

    run(main())
