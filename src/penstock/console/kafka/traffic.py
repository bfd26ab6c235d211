"""Requests for the clients of some topics and groups: producers of partitions, members of groups.

Brokers know producers with an id only: those that are idempotent or transactional. The protocol has neither
the client id nor the address of a producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, gap_of_error
from penstock.console.views.groups import classic_view, consumer_view, share_view
from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap, gap_of_brokers, gap_of_code
from penstock.console.views.samples import GroupSample, Key
from penstock.console.views.traffic import Writer
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest

__all__ = ["find_members", "find_writers"]


async def find_writers(cluster: Cluster, leaders: Mapping[Key, int]) -> tuple[list[Writer], Gap | None]:
    """The producers of partitions, one entry for each topic, and why some are missing."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for (topic, index), leader in leaders.items():
        by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
    requests = {
        leader: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in own.items()]
        )
        for leader, own in by_leader.items()
    }
    gaps: dict[int, Gap] = {}
    found: dict[tuple[int, str], tuple[int, bool]] = {}
    refused: set[str] = set()
    for leader, answer in (await cluster.try_each(DESCRIBE_PRODUCERS, requests)).items():
        if isinstance(answer, Refused | NotReachable):
            gaps[leader] = gap_of_error(answer)
        else:
            refused |= _add_producers(found, answer)
    names, unnamed = await _transactional_ids(cluster, {producer for producer, _ in found})
    writers = [
        Writer(producer, names.get(producer), topic, last_ms, in_transaction)
        for (producer, topic), (last_ms, in_transaction) in found.items()
    ]
    gap = gap_of_brokers(gaps) or unnamed
    if gap is None and refused:
        which = min(refused) if len(refused) == 1 else f"{len(refused)} topics, such as {min(refused)}"
        gap = Gap(REFUSED, f"to see the producers of {which} needs Read on it")
    return writers, gap


def _add_producers(
    found: dict[tuple[int, str], tuple[int, bool]], answer: DescribeProducersResponse
) -> set[str]:
    """Add the producers of an answer; returns the topics that it refuses."""
    refused = set()
    for topic in answer.topics:
        for partition in topic.partitions:
            gap = gap_of_code(partition.error_code, partition.error_message)
            if gap is not None and gap.state == REFUSED:
                refused.add(topic.name)
            for state in partition.active_producers:
                key = (state.producer_id, topic.name)
                last_ms, in_transaction = found.get(key, (-1, False))
                is_open = state.current_txn_start_offset >= 0
                found[key] = (max(last_ms, state.last_timestamp), in_transaction or is_open)
    return refused


async def _transactional_ids(cluster: Cluster, producers: set[int]) -> tuple[dict[int, str], Gap | None]:
    """The transactional ids of producers; an idempotent producer has none."""
    if not producers:
        return {}, None
    request = ListTransactionsRequest(producer_id_filters=sorted(producers))
    answers = await cluster.try_each(LIST_TRANSACTIONS, dict.fromkeys(cluster.nodes, request))
    names: dict[int, str] = {}
    gaps: dict[int, Gap] = {}
    for broker, answer in answers.items():
        if isinstance(answer, Refused | NotReachable):
            gaps[broker] = gap_of_error(answer)
        elif (gap := gap_of_code(answer.error_code)) is not None:
            gaps[broker] = gap
        else:
            names |= {each.producer_id: each.transactional_id for each in answer.transaction_states}
    return names, gap_of_brokers(gaps)


async def find_members(
    cluster: Cluster, groups: Iterable[GroupSample]
) -> dict[str, list[dict[str, Any]] | Gap]:
    """The members of groups, with one request for each coordinator and type; or why they are not known."""
    asked: dict[tuple[int, str], list[str]] = {}
    for group in groups:
        asked.setdefault((group.coordinator, group.kind), []).append(group.name)
    answers = await asyncio.gather(*(_members(cluster, *key, names) for key, names in asked.items()))
    return {name: found for answer in answers for name, found in answer.items()}


async def _members(
    cluster: Cluster, node: int, kind: str, names: list[str]
) -> dict[str, list[dict[str, Any]] | Gap]:
    try:
        described = await _described(cluster, node, kind, names)
    except (Refused, NotReachable) as error:
        return dict.fromkeys(names, gap_of_error(error))
    missing = Gap(UNKNOWN, "its coordinator has not described it")
    return {name: described.get(name, missing) for name in names}


async def _described(
    cluster: Cluster, node: int, kind: str, names: list[str]
) -> dict[str, list[dict[str, Any]] | Gap]:
    if kind == "consumer":
        consumers = await cluster.send_to(
            node, CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=names)
        )
        return {
            g.group_id: gap_of_code(g.error_code, g.error_message) or consumer_view(g)["members"]
            for g in consumers.groups
        }
    if kind == "share":
        shares = await cluster.send_to(node, SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(group_ids=names))
        return {
            g.group_id: gap_of_code(g.error_code, g.error_message) or share_view(g)["members"]
            for g in shares.groups
        }
    classic = await cluster.send_to(node, DESCRIBE_GROUPS, DescribeGroupsRequest(groups=names))
    return {
        g.group_id: gap_of_code(g.error_code, g.error_message) or classic_view(g)["members"]
        for g in classic.groups
    }
