"""The cluster as a roll sees it, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.ids import TopicPartition

__all__ = ["NO_EPOCH", "Broker", "ClusterState", "Partition", "Voter"]

#: the epoch of a broker in a cluster whose brokers do not report it
NO_EPOCH: Final = -1


class Broker(NamedTuple):
    """A registered broker."""

    id: int
    #: its zone; empty if it has none
    rack: str = ""
    #: whether it answers, and the controller has unfenced it
    is_up: bool = True
    #: changes with each registration, so with each start
    epoch: int = NO_EPOCH


class Partition(NamedTuple):
    """A partition. Replicas that a reassignment is adding are not among `replicas`."""

    name: TopicPartition
    replicas: Sequence[int]
    isr: Sequence[int]
    #: None if it has none
    leader: int | None
    min_isr: int = 1


class Voter(NamedTuple):
    """A voter of the metadata quorum."""

    id: int
    #: whether it has fetched recently, and has all but the newest records
    is_current: bool = True


class ClusterState(NamedTuple):
    """Brokers by id, partitions, and the quorum."""

    brokers: Mapping[int, Broker]
    partitions: Sequence[Partition]
    voters: Sequence[Voter]
    #: the active controller; None if there is none
    controller: int | None
