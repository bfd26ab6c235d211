"""States of clusters for tests of rolls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model.ids import TopicPartition
from penstock.rolling.state import Broker, ClusterState, Partition, Voter

__all__ = ["partition", "whole"]


def partition(name: str, replicas: Sequence[int], index: int = 0, *, min_isr: int = 2) -> Partition:
    """A partition whose replicas are all in sync, led by the first."""
    return Partition(TopicPartition(name, index), replicas, replicas, replicas[0], min_isr)


def whole(
    racks: Mapping[int, str],
    *,
    voters: Sequence[int] = (1, 2, 3),
    controller: int | None = 1,
    partitions: Sequence[Partition] = (),
) -> ClusterState:
    """A cluster in which nothing is wrong."""
    brokers = {id_: Broker(id_, rack, epoch=id_) for id_, rack in racks.items()}
    return ClusterState(brokers, partitions, [Voter(id_) for id_ in voters], controller)
