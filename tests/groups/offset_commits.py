"""Committed offsets of groups."""

from __future__ import annotations

from penstock.groups.shard import GroupShard
from penstock.model.ids import TopicId
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.groups.shard_driver import ShardDriver

CHECK_MS = 600_000


def commit(driver: ShardDriver, offset: int, id: TopicId) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", topic_id=id, partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    pending = driver.submit("m", lambda shard, _: shard.commit(request, driver.client("m").version))
    assert pending.response is not None


def offsets(driver: ShardDriver, *names: str) -> dict[str, int]:
    """Fetch by topic name, or all offsets without one."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    request = OffsetFetchRequestGroup(group_id="g", topics=topics or None)

    def fetch(shard: GroupShard, _: object) -> OffsetFetchResponseGroup:
        if names:
            return shard.fetch(request)
        return OffsetFetchResponseGroup(group_id="g", topics=list(shard.fetch_all(request)))

    response = driver.submit("m", fetch).response
    assert isinstance(response, OffsetFetchResponseGroup)
    return {topic.name: topic.partitions[0].committed_offset for topic in response.topics}
