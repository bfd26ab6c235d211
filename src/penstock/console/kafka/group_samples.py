"""The groups of a sample: those that each coordinator lists, with the offsets that they have committed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable
from penstock.console.kafka.committed import fetch_commits, fetch_share_offsets
from penstock.console.views.knowledge import UNKNOWN, Gap, gap_of_brokers, gap_of_code
from penstock.console.views.samples import GroupSample, Key
from penstock.model.errors import PenstockError
from penstock.model.ids import OFFSETS_TOPIC
from penstock.wire.apis.list_groups import LIST_GROUPS, ListedGroup, ListGroupsRequest
from penstock.wire.apis.metadata import MetadataResponse

__all__ = ["sampled_groups"]

#: groups in one OffsetFetch request
_GROUPS_AT_ONCE: Final = 200


async def sampled_groups(
    cluster: Cluster, metadata: MetadataResponse
) -> tuple[list[GroupSample] | None, Gap | None]:
    """The groups of all coordinators with their commits; None if no broker lists its groups.

    The gap is why groups may be missing: a coordinator that is silent or has no leader.
    """
    requests = {broker.node_id: ListGroupsRequest() for broker in metadata.brokers}
    answers = await cluster.try_each(LIST_GROUPS, requests)
    names = {topic.topic_id: topic.name or "" for topic in metadata.topics}
    listed: dict[int, list[ListedGroup]] = {}
    gaps: dict[int, Gap] = {}
    for broker, answer in answers.items():
        if isinstance(answer, PenstockError):
            gaps[broker] = Gap(UNKNOWN, "no response" if isinstance(answer, NotReachable) else str(answer))
        elif (gap := gap_of_code(answer.error_code)) is not None:
            gaps[broker] = gap
        else:
            listed[broker] = answer.groups
    gap = gap_of_brokers(gaps, _leaderless(metadata))
    if not listed:
        return None, gap or Gap(UNKNOWN, "no broker lists its groups")
    found = await asyncio.gather(
        *(_with_commits(cluster, broker, groups, names) for broker, groups in listed.items())
    )
    return sorted((each for groups in found for each in groups), key=lambda group: group.name), gap


def _leaderless(metadata: MetadataResponse) -> list[str]:
    """Groups whose coordinator has no leader are listed by no broker."""
    lost = sum(
        p.leader_id < 0 for topic in metadata.topics if topic.name == OFFSETS_TOPIC for p in topic.partitions
    )
    return [f"{lost} of the partitions of {OFFSETS_TOPIC} have no leader"] if lost else []


async def _with_commits(
    cluster: Cluster, broker: int, groups: list[ListedGroup], topic_names: Mapping[bytes, str]
) -> list[GroupSample]:
    commits: dict[str, dict[Key, int] | Gap] = {}
    lags: dict[str, dict[Key, int]] = {}
    for names in _slices([group.group_id for group in groups if group.group_type.lower() != "share"]):
        commits |= await fetch_commits(cluster, broker, names, topic_names)
    for names in _slices([group.group_id for group in groups if group.group_type.lower() == "share"]):
        for name, found in (await fetch_share_offsets(cluster, broker, names)).items():
            if isinstance(found, Gap):
                commits[name] = found
            else:
                commits[name], lags[name] = found
    samples = []
    for group in groups:
        known = commits.get(group.group_id, Gap(UNKNOWN, "its offsets are not known"))
        samples.append(
            GroupSample(
                group.group_id,
                group.group_state or "Unknown",
                group.group_type.lower() or "classic",
                group.protocol_type,
                broker,
                {} if isinstance(known, Gap) else known,
                lags.get(group.group_id, {}),
                known if isinstance(known, Gap) else None,
            )
        )
    return samples


def _slices(names: list[str]) -> list[list[str]]:
    return [names[first : first + _GROUPS_AT_ONCE] for first in range(0, len(names), _GROUPS_AT_ONCE)]
