"""The invariants of a cluster: views that keep each rule, and views that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.invariants import PartitionInvariants, RaftInvariants

T = TopicPartition("t", 0)


@dataclass(frozen=True)
class Raft:
    node_id: int = 1
    is_leader: bool = False
    is_prospective: bool = False
    epoch: int = 1
    voted_for: int | None = None
    log: Sequence[tuple[int, int]] = ((0, 1), (1, 1))
    high_watermark: int = 0
    flushed_end: int = 2
    snapshot_end: int = 0


@dataclass(frozen=True)
class Partition:
    partition: TopicPartition = T
    leader: int = 1
    leader_epoch: int = 1
    replicas: Sequence[int] = (1, 2, 3)
    isr: Sequence[int] = (1, 2)
    elr: Sequence[int] = ()
    unclean_allowed: bool = False


@dataclass(frozen=True)
class Replica:
    node_id: int = 1
    records: Mapping[int, tuple[int, int]] = field(default_factory=lambda: {0: (1, 100), 1: (1, 101)})
    high_watermark: int = 2
    partition: TopicPartition = T


@dataclass(frozen=True)
class View:
    raft: Sequence[Raft] = ()
    partitions: Sequence[Partition] = ()
    replicas: Sequence[Replica] = ()
    voters: AbstractSet[int] = frozenset({1, 2, 3})
    fenced: AbstractSet[int] = frozenset()


def raft(*nodes: Raft) -> View:
    return View(raft=nodes)


def verdict(check: RaftInvariants | PartitionInvariants, *views: View) -> str:
    try:
        for view in views:
            check.check(view)
    except Violation as e:
        return e.name
    return "kept"


COMMITTED = raft(Raft(high_watermark=2))


@pytest.mark.parametrize(
    ("views", "name"),
    [
        ([raft(Raft(1, is_leader=True), Raft(2), Raft(3)), raft(Raft(2, is_leader=True, epoch=2))], "kept"),
        ([raft(Raft(1, is_leader=True), Raft(2, is_leader=True))], "two leaders in an epoch"),
        ([raft(Raft(1, is_leader=True)), raft(Raft(2, is_leader=True))], "two leaders in an epoch"),
        ([raft(Raft(voted_for=1)), raft(Raft(voted_for=2))], "two votes in an epoch"),
        ([raft(Raft(voted_for=1)), raft(Raft(voted_for=2, epoch=2))], "kept"),
        ([COMMITTED, raft(Raft(2, is_leader=True, epoch=2, log=[(0, 1)]))], "leader completeness"),
        ([COMMITTED, raft(Raft(2, is_leader=True, epoch=2, log=[(0, 1), (1, 2)]))], "leader completeness"),
        ([COMMITTED, raft(Raft(2, is_leader=True, epoch=2, log=[(0, 1), (1, 1), (2, 2)]))], "kept"),
        ([COMMITTED, raft(Raft(high_watermark=1))], "high watermark fell"),
        ([COMMITTED, raft(Raft(high_watermark=2, log=[(0, 1)]))], "truncated below high watermark"),
        ([COMMITTED, raft(Raft(2, high_watermark=2, log=[(0, 1), (1, 2)]))], "committed record changed"),
        ([raft(Raft(snapshot_end=2, high_watermark=1))], "snapshot above high watermark"),
        ([raft(Raft(1, log=[(0, 1), (1, 2)]), Raft(2, log=[(0, 2), (1, 2)]))], "log matching"),
        ([raft(Raft(1, log=[(0, 1), (1, 1)]), Raft(2, log=[(0, 1), (1, 2)]))], "kept"),
        (
            [raft(Raft(1, high_watermark=2), Raft(2, flushed_end=1), Raft(3, flushed_end=1))],
            "high watermark not flushed",
        ),
        ([raft(Raft(1, high_watermark=2), Raft(2, flushed_end=2), Raft(3, flushed_end=1))], "kept"),
        (
            [raft(Raft(epoch=1)), raft(Raft(epoch=2, voted_for=1, is_prospective=True))],
            "pre-vote changed state",
        ),
        ([raft(Raft(epoch=1)), raft(Raft(epoch=1, is_prospective=True))], "kept"),
    ],
)
def test_raft(views: list[View], name: str) -> None:
    assert verdict(RaftInvariants(), *views) == name


def test_a_restarted_node_may_have_forgotten_its_high_watermark() -> None:
    invariants = RaftInvariants()
    invariants.check(COMMITTED)
    invariants.restarted(1)
    assert verdict(invariants, raft(Raft(high_watermark=0))) == "kept"


def partitions(*found: Partition, fenced: AbstractSet[int] = frozenset()) -> View:
    return View(partitions=found, fenced=fenced)


@pytest.mark.parametrize(
    ("views", "name"),
    [
        ([partitions(Partition()), partitions(Partition(leader=2, leader_epoch=2))], "kept"),
        ([partitions(Partition(leader=-1, isr=()))], "kept"),
        ([partitions(Partition(isr=(1, 4)))], "ISR outside replicas"),
        ([partitions(Partition(leader=3))], "leader outside ISR"),
        ([partitions(Partition(elr=(2,)))], "ISR and ELR overlap"),
        ([partitions(Partition(), fenced={2})], "fenced broker in ISR"),
        ([partitions(Partition()), partitions(Partition(leader=2))], "leader epoch did not rise"),
        ([partitions(Partition(leader_epoch=2)), partitions(Partition())], "leader epoch did not rise"),
        (
            [View(replicas=[Replica(1), Replica(2, records={0: (1, 100), 1: (1, 999)})])],
            "offset and epoch name two records",
        ),
        ([View(replicas=[Replica(1), Replica(2, records={0: (1, 100), 1: (2, 999)})])], "kept"),
        (
            [View(partitions=[Partition()], replicas=[Replica(1), Replica(2, records={0: (1, 100)})])],
            "candidate completeness",
        ),
        (
            [View(partitions=[Partition()], replicas=[Replica(1), Replica(3, records={0: (1, 100)})])],
            "kept",
        ),
        (
            [
                View(
                    partitions=[Partition(unclean_allowed=True)],
                    replicas=[Replica(1), Replica(2, records={0: (1, 100)})],
                )
            ],
            "kept",
        ),
    ],
)
def test_partitions(views: list[View], name: str) -> None:
    assert verdict(PartitionInvariants(), *views) == name
