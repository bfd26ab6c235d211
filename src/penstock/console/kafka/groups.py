"""Requests to coordinators of groups: describe, committed offsets, reset, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.console.kafka.cluster import Cluster, Refused, check
from penstock.console.kafka.committed import fetch_commits, fetch_share_offsets
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.kafka.rights import rights_of
from penstock.console.views.groups import (
    Move,
    Target,
    classic_view,
    consumer_view,
    reset_moves,
    share_view,
    streams_view,
)
from penstock.console.views.knowledge import REFUSED, Gap
from penstock.console.views.samples import Key, partitions_of
from penstock.wire.api import Api
from penstock.wire.apis.alter_share_group_offsets import (
    ALTER_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from penstock.wire.apis.streams_group_describe import STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest

__all__ = ["commits_of", "delete_group", "describe_group", "plan_reset", "reset"]

_NO_MEMBER = -1
_Description: TypeAlias = tuple[Api[Any, Any], Callable[..., Any], str, Callable[[Any], dict[str, Any]]]
#: of groups of the classic protocol: the request, its field with the names, and the view of a response
_CLASSIC: Final[_Description] = (DESCRIBE_GROUPS, DescribeGroupsRequest, "groups", classic_view)
#: of groups of other types
_DESCRIPTIONS: Final[dict[str, _Description]] = {
    "consumer": (CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, "group_ids", consumer_view),
    "share": (SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest, "group_ids", share_view),
    "streams": (STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest, "group_ids", streams_view),
}


async def describe_group(cluster: Cluster, name: str, kind: str) -> dict[str, Any]:
    """Members and assignment of a group of the given type, and what the user may do with it."""
    node = await cluster.coordinator(name)
    api, request, field, view = _DESCRIPTIONS.get(kind, _CLASSIC)
    answer = await cluster.send_to(node, api, request(**{field: [name]}, include_authorized_operations=True))
    group = answer.groups[0]
    check(group.error_code, group.error_message, f"group {name}")
    return {
        "name": name,
        "kind": kind,
        "coordinator": node,
        "rights": rights_of(group.authorized_operations),
        **view(group),
    }


async def commits_of(
    cluster: Cluster, name: str, kind: str, coordinator: int
) -> tuple[dict[Key, int], dict[Key, int]]:
    """Committed offsets; of a share group, the start offsets of its partitions and their lags.

    Raises Refused if they are not known: a reset must not take them for missing.
    """
    found: dict[Key, int] | tuple[dict[Key, int], dict[Key, int]] | Gap | None
    if kind == "share":
        found = (await fetch_share_offsets(cluster, coordinator, [name])).get(name)
    else:
        found = (await fetch_commits(cluster, coordinator, [name])).get(name)
    if isinstance(found, Gap):
        error = "GROUP_AUTHORIZATION_FAILED" if found.state == REFUSED else "COORDINATOR_NOT_AVAILABLE"
        raise Refused(error, f"the offsets of group {name} are not known: {found.reason}")
    if found is None:
        return {}, {}
    return found if isinstance(found, tuple) else (found, {})


async def plan_reset(
    cluster: Cluster, commits: dict[Key, int], topics: list[str], target: Target
) -> list[Move]:
    """The changes of a reset: of partitions with a commit, or of all partitions of `topics`."""
    names = topics or sorted({topic for topic, _ in commits})
    metadata = await cluster.metadata(names)
    for topic in metadata.topics:
        check(topic.error_code, None, f"topic {topic.name}")
    partitions = partitions_of(metadata)
    keys = sorted(partitions if topics else commits.keys() & partitions.keys())
    leaders = {key: partitions[key].leader for key in keys if partitions[key].leader >= 0}
    starts, ends, looked_up = await asyncio.gather(
        list_offsets(cluster, leaders, EARLIEST),
        list_offsets(cluster, leaders, LATEST),
        list_offsets(cluster, leaders if target.kind == "time" else {}, target.value),
    )
    return reset_moves(target, keys, commits, starts, ends, looked_up)


async def reset(cluster: Cluster, name: str, kind: str, moves: list[Move]) -> None:
    """Commit the new offsets of a group without members; Refused if it has members."""
    if not moves:
        raise Refused("INVALID_REQUEST", "there is no offset to change")
    node = await cluster.coordinator(name)
    by_topic: dict[str, list[Move]] = {}
    for move in moves:
        by_topic.setdefault(move.topic, []).append(move)
    if kind == "share":
        await _reset_share(cluster, node, name, by_topic)
        return
    metadata = await cluster.metadata(by_topic)
    ids = {topic.name: topic.topic_id for topic in metadata.topics}
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=ids.get(topic, bytes(16)),
            partitions=[
                OffsetCommitRequestPartition(partition_index=move.partition, committed_offset=move.after)
                for move in own
            ],
        )
        for topic, own in by_topic.items()
    ]
    request = OffsetCommitRequest(
        group_id=name, generation_id_or_member_epoch=_NO_MEMBER, member_id="", topics=topics
    )
    answer = await cluster.send_to(node, OFFSET_COMMIT, request)
    for found in answer.topics:
        for partition in found.partitions:
            check(partition.error_code, _advice(partition.error_code), f"group {name}")


def _advice(code: int) -> str | None:
    # UNKNOWN_MEMBER_ID, as a group with members answers
    return "it has members: stop them before its offsets are reset" if code == 25 else None


async def _reset_share(cluster: Cluster, node: int, name: str, by_topic: dict[str, list[Move]]) -> None:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=move.partition, start_offset=move.after
                )
                for move in own
            ],
        )
        for topic, own in by_topic.items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id=name, topics=topics)
    answer = await cluster.send_to(node, ALTER_SHARE_GROUP_OFFSETS, request)
    check(answer.error_code, answer.error_message, f"group {name}")
    for found in answer.responses:
        for partition in found.partitions:
            check(partition.error_code, partition.error_message, f"group {name}")


async def delete_group(cluster: Cluster, name: str) -> None:
    node = await cluster.coordinator(name)
    answer = await cluster.send_to(node, DELETE_GROUPS, DeleteGroupsRequest(groups_names=[name]))
    for result in answer.results:
        check(result.error_code, None, f"group {name} is not deleted")
