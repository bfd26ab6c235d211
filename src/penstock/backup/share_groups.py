"""The start offsets of share groups: read for a cut, and set in the cluster into which it is restored.

The protocol gives no more of their state: records behind a start offset that were acknowledged already, and
those that members had acquired, are delivered again after a restore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from penstock.archive.cuts import CutGroup, CutOffset
from penstock.backup.restored_groups import Target
from penstock.backup.source import ATTEMPTS, PASSING, PAUSE_S, Cluster, SourceFailed
from penstock.backup.source_groups import coordinator_of
from penstock.model.errors import ErrorCode, error_name
from penstock.ports import Rng
from penstock.wire.apis.alter_share_group_offsets import (
    ALTER_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.apis.describe_share_group_offsets import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest

__all__ = ["read_share_groups", "set_share_groups"]

#: the epochs of a member that joins and of one that leaves
_JOIN: Final = 0
_LEAVE: Final = -1


async def read_share_groups(cluster: Cluster, names: Iterable[str]) -> list[CutGroup]:
    """The start offsets of share groups; a group without any is left out."""
    groups = [await _read(cluster, name) for name in sorted(names)]
    return [group for group in groups if group.offsets]


async def _read(cluster: Cluster, name: str) -> CutGroup:
    code = 0
    for _ in range(ATTEMPTS):
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[wanted])
        broker = await coordinator_of(cluster, name)
        (found,) = (await cluster.send_to(broker, DESCRIBE_SHARE_GROUP_OFFSETS, request)).groups
        parts = [(topic.topic_name, each) for topic in found.topics for each in topic.partitions]
        code = found.error_code or next((each.error_code for _, each in parts if each.error_code), 0)
        if not code:
            return CutGroup(
                group=name,
                offsets=tuple(
                    CutOffset(topic=topic, partition=each.partition_index, offset=each.start_offset)
                    for topic, each in parts
                    # -1: no member has read the partition yet
                    if each.start_offset >= 0
                ),
            )
        if code not in PASSING:
            break
        await asyncio.sleep(PAUSE_S)
    raise SourceFailed(f"the start offsets of share group {name} cannot be read: {error_name(code)}")


async def set_share_groups(
    client: Cluster, groups: Mapping[str, CutGroup], targets: Sequence[Target], rng: Rng
) -> None:
    """Set the start offsets of `groups` in the topics under their new names."""
    names = {target.topic.topic: target.name for target in targets}
    for name, group in groups.items():
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for each in group.offsets:
            topics.setdefault(names[each.topic], []).append(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=each.partition, start_offset=each.offset
                )
            )
        await _make(client, name, list(topics), rng)
        await _set(client, name, topics)


async def _make(client: Cluster, group: str, topics: list[str], rng: Rng) -> None:
    """Have the cluster know the group: a member joins and leaves."""
    member = str(UUID(bytes=rng.token(16), version=4))
    for epoch, names in ((_JOIN, topics), (_LEAVE, None)):
        code, message = 0, ""
        for _ in range(ATTEMPTS):
            request = ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
            )
            answer = await client.send_to(await coordinator_of(client, group), SHARE_GROUP_HEARTBEAT, request)
            code, message = answer.error_code, answer.error_message or error_name(answer.error_code)
            if code not in PASSING:
                break
            await asyncio.sleep(PAUSE_S)
        if code:
            raise SourceFailed(f"share group {group} cannot be restored: {message}")


async def _set(
    client: Cluster, group: str, topics: Mapping[str, list[AlterShareGroupOffsetsRequestPartition]]
) -> None:
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    code = 0
    for _ in range(ATTEMPTS):
        answer = await client.send_to(await coordinator_of(client, group), ALTER_SHARE_GROUP_OFFSETS, request)
        codes = [answer.error_code, *(each.error_code for t in answer.responses for each in t.partitions)]
        code = next((each for each in codes if each), ErrorCode.NONE)
        if not code:
            return
        if code not in PASSING:
            break
        await asyncio.sleep(PAUSE_S)
    raise SourceFailed(f"share group {group} cannot be restored: {error_name(code)}")
