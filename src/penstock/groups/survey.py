"""A view of the groups of a shard for metrics: members, rebalances, committed offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.groups.classic import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.group import Group
from penstock.groups.pending_offsets import Committed
from penstock.groups.streams.group import StreamsGroup

__all__ = ["GroupSurvey", "survey_groups"]


class GroupSurvey(NamedTuple):
    group: str
    members: int
    #: the generation or the epoch of the group: each rebalance raises it, and it outlives its coordinator
    rebalances: int
    #: by topic and partition; not to be changed
    offsets: Mapping[str, Mapping[int, Committed]]


def survey_groups(
    groups: Mapping[str, Group], offsets: Mapping[str, Mapping[str, Mapping[int, Committed]]]
) -> Iterator[GroupSurvey]:
    """All groups, one at a time. Groups may change between two of them."""
    for group_id in list(groups):
        group = groups.get(group_id)
        if isinstance(group, ClassicGroup):
            members, rebalances = len(group.members), group.generation
        elif isinstance(group, ConsumerGroup | StreamsGroup):
            members, rebalances = len(group.members), group.epoch
        else:
            continue
        yield GroupSurvey(group_id, members, rebalances, offsets.get(group_id, {}))
