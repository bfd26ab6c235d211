"""Offsets of groups by their coordinators: commits, and start offsets and lags of share groups."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.views.knowledge import UNKNOWN, Gap, gap_of_code
from penstock.console.views.samples import Key
from penstock.wire.apis.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

__all__ = ["fetch_commits", "fetch_share_offsets"]


async def fetch_commits(
    cluster: Cluster, broker: int, groups: list[str], names: Mapping[bytes, str] | None = None
) -> dict[str, dict[Key, int] | Gap]:
    """The committed offsets of groups that a broker coordinates, or why they are not known.

    `names` are those of topic ids; without them, Metadata is requested if the response has ids only.
    """
    request = OffsetFetchRequest(
        group_id=groups[0],
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups],
    )
    try:
        response = await cluster.send_to(broker, OFFSET_FETCH, request)
    except (Refused, NotReachable) as error:
        return dict.fromkeys(groups, Gap(UNKNOWN, str(error)))
    if not response.groups:  # versions before 8 have one group
        failed = gap_of_code(response.error_code)
        if failed is not None:
            return {groups[0]: failed}
        found = {
            (topic.name, p.partition_index): p.committed_offset
            for topic in response.topics
            for p in topic.partitions
            if p.committed_offset >= 0
        }
        return {groups[0]: found}
    if names is None:
        names = await _topic_names(cluster, response.groups)
    return {
        group.group_id: gap_of_code(group.error_code) or _offsets(group, names) for group in response.groups
    }


def _offsets(group: OffsetFetchResponseGroup, names: Mapping[bytes, str]) -> dict[Key, int]:
    return {
        (name, p.partition_index): p.committed_offset
        for topic in group.topics
        # A topic without a name was deleted, or may not be described.
        if (name := topic.name or names.get(topic.topic_id, ""))
        for p in topic.partitions
        if p.committed_offset >= 0
    }


async def _topic_names(cluster: Cluster, groups: list[OffsetFetchResponseGroup]) -> dict[bytes, str]:
    """Names of topic ids, which version 10 has instead of names."""
    if all(topic.name for group in groups for topic in group.topics):
        return {}
    metadata = await cluster.metadata()
    return {topic.topic_id: topic.name or "" for topic in metadata.topics}


async def fetch_share_offsets(
    cluster: Cluster, broker: int, groups: list[str]
) -> dict[str, tuple[dict[Key, int], dict[Key, int]] | Gap]:
    """Start offsets and lags of share groups that a broker coordinates, or why they are not known.

    A partition that no member has read yet has neither. Version 0 has no lags.
    """
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None) for group in groups]
    )
    try:
        response = await cluster.send_to(broker, DESCRIBE_SHARE_GROUP_OFFSETS, request)
    except (Refused, NotReachable) as error:
        return dict.fromkeys(groups, Gap(UNKNOWN, str(error)))
    found: dict[str, tuple[dict[Key, int], dict[Key, int]] | Gap] = {}
    for group in response.groups:
        failed = gap_of_code(group.error_code, group.error_message)
        if failed is not None:
            found[group.group_id] = failed
            continue
        starts: dict[Key, int] = {}
        lags: dict[Key, int] = {}
        for topic in group.topics:
            for p in topic.partitions:
                key = (topic.topic_name, p.partition_index)
                if not p.error_code and p.start_offset >= 0:
                    starts[key] = p.start_offset
                    if p.lag >= 0:
                        lags[key] = p.lag
        found[group.group_id] = (starts, lags)
    return found
