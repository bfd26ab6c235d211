"""Sets committed offsets back to where a log will be cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.model.addresses import address_text
from penstock.model.ids import TopicId, TopicPartition
from penstock.net.link_client import LinkError, LinkPort
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
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
)

__all__ = ["limit_committed"]

#: groups of one request
_GROUPS_MAX: Final = 100
#: groups without committed offsets of their own kind
_SHARE: Final = "share"


async def limit_committed(cluster: LinkPort, ends: Mapping[TopicPartition, int]) -> list[str]:
    """Set offsets that groups have committed behind `ends` back to them.

    Returns the groups whose offsets stay: members read for them, and learn of the cut from fetches, or their
    coordinator refuses the change.
    """
    names = {key.topic for key in ends}
    if not names:
        return []
    asked = [MetadataRequestTopic(name=name) for name in sorted(names)]
    metadata = await cluster.send(METADATA, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    ids = {topic.name or "": TopicId(topic.topic_id) for topic in metadata.topics}
    brokers = [address_text(each.host, each.port) for each in metadata.brokers]
    left: list[str] = []
    for address, listed in (await cluster.send_each(brokers, LIST_GROUPS, ListGroupsRequest())).items():
        if listed is None:
            raise LinkError(f"broker {address} does not list its groups: their offsets are not compared")
        cluster.check(listed.error_code, None, f"the groups of broker {address} cannot be listed")
        # Each broker lists the groups that it coordinates.
        groups = sorted(each.group_id for each in listed.groups if each.group_type.lower() != _SHARE)
        for start in range(0, len(groups), _GROUPS_MAX):
            left += await _limit(cluster, address, groups[start : start + _GROUPS_MAX], ends, ids)
    return sorted(left)


async def _limit(
    cluster: LinkPort,
    address: str,
    groups: Sequence[str],
    ends: Mapping[TopicPartition, int],
    ids: Mapping[str, TopicId],
) -> list[str]:
    """Set the offsets of groups back that one broker coordinates; returns those that it refuses."""
    partitions: dict[str, list[int]] = {}
    for key in ends:
        partitions.setdefault(key.topic, []).append(key.partition)
    topics = [
        OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=indexes)
        for name, indexes in partitions.items()
    ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=each, topics=topics) for each in groups]
    )
    fetched = (await cluster.send_each([address], OFFSET_FETCH, request))[address]
    if fetched is None:
        return list(groups)
    names, left = {topic_id: name for name, topic_id in ids.items()}, []
    for group in fetched.groups:
        moves: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic in group.topics:
            name = topic.name or names.get(TopicId(topic.topic_id), "")
            for each in topic.partitions:
                end = ends.get(TopicPartition(name, each.partition_index))
                if end is not None and each.committed_offset > end:
                    moved = OffsetCommitRequestPartition(
                        partition_index=each.partition_index,
                        committed_offset=end,
                        committed_metadata=each.metadata,
                    )
                    moves.setdefault(name, []).append(moved)
        if group.error_code or not await _commit(cluster, address, group.group_id, moves, ids):
            left.append(group.group_id)
    return left


async def _commit(
    cluster: LinkPort,
    address: str,
    group: str,
    moves: Mapping[str, list[OffsetCommitRequestPartition]],
    ids: Mapping[str, TopicId],
) -> bool:
    if not moves:
        return True
    topics = [
        OffsetCommitRequestTopic(name=name, topic_id=ids[name], partitions=each)
        for name, each in moves.items()
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    answer = (await cluster.send_each([address], OFFSET_COMMIT, request))[address]
    if answer is None:
        return False
    return not any(each.error_code for topic in answer.topics for each in topic.partitions)
