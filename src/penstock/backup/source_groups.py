"""The committed offsets of all groups, and the configs of topics, of the cluster that is backed up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from penstock.archive.cuts import CutGroup, CutOffset
from penstock.backup.source import ATTEMPTS, PASSING, PAUSE_S, Cluster, SourceFailed
from penstock.model.errors import ErrorCode, error_name
from penstock.model.ids import TopicId
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from penstock.wire.routing import coordinator_in, coordinator_request

__all__ = ["coordinator_of", "is_share_group", "list_groups", "read_configs", "read_groups"]

_Committed: TypeAlias = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
_TOPIC: Final = 2
#: DescribeConfigs: a config that was set for the topic
_DYNAMIC_TOPIC_CONFIG: Final = 1
_SHARE: Final = "share"


async def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    """All groups of a cluster by name."""
    groups: dict[str, ListedGroup] = {}
    for broker in cluster.broker_ids:
        listed = await cluster.send_to(broker, LIST_GROUPS, ListGroupsRequest())
        if listed.error_code:
            raise SourceFailed(f"groups cannot be listed: {error_name(listed.error_code)}")
        groups |= {each.group_id: each for each in listed.groups}
    return groups


def is_share_group(group: ListedGroup) -> bool:
    return group.group_type.lower() == _SHARE


async def read_groups(cluster: Cluster, names: Iterable[str]) -> list[CutGroup]:
    """The committed offsets of consumer groups; transactions that commit offsets are waited for."""
    groups = [await _read_group(cluster, name) for name in sorted(names)]
    return [group for group in groups if group.offsets]


async def _read_group(cluster: Cluster, name: str) -> CutGroup:
    code = 0
    for _ in range(ATTEMPTS):
        request = OffsetFetchRequest(
            group_id=name,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None)],
            require_stable=True,
        )
        answer = await cluster.send_to(await coordinator_of(cluster, name), OFFSET_FETCH, request)
        code, offsets = _offsets(cluster, answer)
        if not code:
            return CutGroup(group=name, offsets=tuple(offsets))
        if code not in PASSING:
            break
        await asyncio.sleep(PAUSE_S)
    raise SourceFailed(f"the offsets of group {name} cannot be read: {error_name(code)}")


def _offsets(cluster: Cluster, answer: OffsetFetchResponse) -> tuple[int, list[CutOffset]]:
    """(error code, offsets): responses of versions up to 7 have one group, newer ones have a list."""
    names = {topic.topic_id: topic.name for topic in cluster.topics.values()}
    code, offsets = answer.error_code, []
    topics: list[tuple[str, Sequence[_Committed]]] = [(each.name, each.partitions) for each in answer.topics]
    for group in answer.groups:
        code = code or group.error_code
        topics += [
            (each.name or names.get(TopicId(each.topic_id), ""), each.partitions) for each in group.topics
        ]
    for name, partitions in topics:
        for each in partitions:
            code = code or each.error_code
            if each.committed_offset >= 0 and name:
                offsets.append(
                    CutOffset(
                        topic=name,
                        partition=each.partition_index,
                        offset=each.committed_offset,
                        metadata=each.metadata or "",
                    )
                )
    return code, offsets


async def coordinator_of(cluster: Cluster, group: str) -> int:
    """The broker that coordinates a group; waits while there is none."""
    for _ in range(ATTEMPTS):
        found = await _coordinator(cluster, group)
        if found is not None:
            return found
        await asyncio.sleep(PAUSE_S)
    raise SourceFailed(f"group {group} has no coordinator")


async def _coordinator(cluster: Cluster, group: str) -> int | None:
    found = coordinator_in(await cluster.send_any(FIND_COORDINATOR, coordinator_request(group)))
    return found.node_id if found.error_code == ErrorCode.NONE else None


async def read_configs(cluster: Cluster, topics: list[str]) -> dict[str, dict[str, str]]:
    """The configs that were set for each topic."""
    resources = [DescribeConfigsResource(resource_type=_TOPIC, resource_name=name) for name in topics]
    for resource in resources:
        resource.configuration_keys = None
    answer = await cluster.send_any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
    found: dict[str, dict[str, str]] = {}
    for result in answer.results:
        if result.error_code:
            reason = result.error_message or error_name(result.error_code)
            raise SourceFailed(f"the configs of {result.resource_name} cannot be read: {reason}")
        found[result.resource_name] = {
            each.name: each.value
            for each in result.configs
            if each.config_source == _DYNAMIC_TOPIC_CONFIG and each.value is not None
        }
    return found
