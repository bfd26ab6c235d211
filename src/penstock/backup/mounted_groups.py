"""The groups of a mounted backup: their offsets are committed in the broker that serves it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from penstock.archive.cuts import Cut, CutGroup
from penstock.archive.errors import ArchiveRefused
from penstock.broker.base.awaiting import awaited
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.groups.shard import GroupShard
from penstock.metadata.image import TopicImage
from penstock.model.errors import ApiError, error_name
from penstock.net.deferred import Deferred
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["commit_groups"]

#: the version of OffsetCommit whose rules apply
_VERSION: Final = 9
#: how long the coordinators of a new broker may take
_SETTLE_S: Final = 30.0


async def commit_groups(
    groups: CoordinatorRuntime[GroupShard], cut: Cut, topics: Mapping[str, TopicImage]
) -> None:
    """Commit the offsets of all groups of a cut, none behind the end of its partition."""
    ends = {
        (topic.topic, each.partition): each.end_offset + len(each.open)
        for topic in cut.topics
        for each in topic.partitions
    }
    await groups.wait_until_settled([group.group for group in cut.groups], _SETTLE_S)
    for group in cut.groups:
        request = _request(group, ends, topics)
        if not request.topics:
            continue
        response: Any = groups.submit(group.group, partial(_operate, request), _failed)
        if isinstance(response, Deferred):
            response = await awaited(response)
        for each in (each for topic in response.topics for each in topic.partitions):
            if each.error_code:
                raise ArchiveRefused(
                    f"the offsets of group {group.group} cannot be mounted: {error_name(each.error_code)}"
                )


def _operate(request: OffsetCommitRequest, shard: GroupShard, _: object) -> OffsetCommitResponse:
    return shard.commit(request, _VERSION)


def _failed(error: ApiError) -> OffsetCommitResponse:
    failed = OffsetCommitResponsePartition(error_code=error.code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=[failed])])


def _request(
    group: CutGroup, ends: Mapping[tuple[str, int], int], topics: Mapping[str, TopicImage]
) -> OffsetCommitRequest:
    offsets: dict[str, list[OffsetCommitRequestPartition]] = {}
    for each in group.offsets:
        end = ends.get((each.topic, each.partition))
        if end is not None:
            offsets.setdefault(each.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=min(each.offset, end),
                    committed_metadata=each.metadata,
                )
            )
    return OffsetCommitRequest(
        group_id=group.group,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topics[name].id, partitions=partitions)
            for name, partitions in offsets.items()
        ],
    )
