"""The invariants of a cluster: views that keep each rule, and views that break it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.invariants import (
    BatchView,
    PartitionInvariants,
    PartitionView,
    RaftInvariants,
    RaftView,
    ReplicaView,
)

T = TopicPartition("t", 0)
FIRST, SECOND = BatchView(0, 1, 1, 100), BatchView(1, 2, 1, 101)


def raft(node_id: int = 1, log: Sequence[BatchView] = (FIRST, SECOND), **changes: Any) -> RaftView:
    end = log[-1].end if log else 0
    view = RaftView(node_id, 1, False, None, None, log, end, 0, end, 0, frozenset({1, 2, 3}))
    return view._replace(**changes)


def verdict(*views: RaftView) -> str:
    """All voters have flushed two records before anything is looked at."""
    invariants = RaftInvariants()
    for voter in (1, 2, 3):
        invariants.check(raft(voter))
    try:
        for view in views:
            invariants.check(view)
    except Violation as e:
        return e.name
    return "kept"


COMMITTED = raft(is_leader=True, high_watermark=2)
OTHER = SECOND._replace(epoch=2)
THIRD = BatchView(2, 3, 2, 102)


@pytest.mark.parametrize(
    ("views", "name"),
    [
        ([raft(1, is_leader=True), raft(2, is_leader=True, epoch=2)], "kept"),
        ([raft(1, is_leader=True), raft(2, is_leader=True)], "two leaders in an epoch"),
        ([raft(voted_for=1), raft(voted_for=2)], "two votes in an epoch"),
        ([raft(voted_for=1), raft(voted_for=2, epoch=2)], "kept"),
        ([COMMITTED, raft(2, [FIRST], is_leader=True, epoch=2)], "leader completeness"),
        ([COMMITTED, raft(2, [FIRST, OTHER], is_leader=True, epoch=2)], "leader completeness"),
        ([COMMITTED, raft(2, [FIRST, SECOND, THIRD], is_leader=True, epoch=2)], "kept"),
        ([COMMITTED, raft(2, [FIRST], is_leader=True, epoch=0)], "kept"),
        ([COMMITTED, raft(is_leader=True, high_watermark=1)], "high watermark fell"),
        ([COMMITTED, raft(1, [FIRST], high_watermark=2)], "truncated below high watermark"),
        ([COMMITTED, raft(2, [FIRST, OTHER], high_watermark=2)], "committed record changed"),
        ([raft(is_leader=True, epoch=2, high_watermark=2)], "committed a record of another epoch"),
        ([raft(snapshot_end=2, high_watermark=1)], "snapshot above high watermark"),
        ([raft(2, [FIRST]), raft(3, [FIRST]), COMMITTED], "high watermark not flushed"),
        ([raft(3, [FIRST]), COMMITTED], "kept"),
        ([raft(pre_vote="a"), raft(pre_vote="a", epoch=2)], "pre-vote changed state"),
        ([raft(pre_vote="a"), raft(pre_vote="b", epoch=2)], "kept"),
        ([raft(pre_vote="a"), raft(epoch=2)], "kept"),
    ],
)
def test_raft(views: list[RaftView], name: str) -> None:
    assert verdict(*views) == name


def test_a_restarted_node_may_have_forgotten_its_high_watermark() -> None:
    invariants = RaftInvariants()
    for voter in (1, 2, 3):
        invariants.check(raft(voter))
    invariants.check(COMMITTED)
    invariants.restarted(1)
    invariants.check(raft())


@pytest.mark.parametrize(
    ("voters", "name"), [({1, 2, 3}, "kept"), ({1, 3, 4}, "high watermark not flushed"), ({1}, "kept")]
)
def test_the_majority_that_commits_is_that_of_the_voters_at_the_time(voters: set[int], name: str) -> None:
    invariants = RaftInvariants()
    for node, log in ((1, [FIRST, SECOND]), (2, [FIRST, SECOND]), (3, [FIRST])):
        invariants.check(raft(node, log))
    found = "kept"
    try:
        invariants.check(COMMITTED._replace(voters=voters))
    except Violation as e:
        found = e.name
    assert found == name


def test_committed_records_stay_committed_when_voters_change() -> None:
    invariants = RaftInvariants()
    for view in (raft(1), raft(2), raft(3, [FIRST]), COMMITTED):
        invariants.check(view)
    invariants.check(COMMITTED._replace(voters={1, 3, 4}))


def test_a_restarted_node_has_not_forgotten_its_vote() -> None:
    invariants = RaftInvariants()
    invariants.check(raft(voted_for=1))
    invariants.restarted(1)
    with pytest.raises(Violation, match="two votes in an epoch"):
        invariants.check(raft(voted_for=2))


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ([FIRST, SECOND], "kept"),
        ([FIRST, OTHER], "kept"),
        ([FIRST, SECOND._replace(crc=999)], "offset and epoch name two records"),
        ([FIRST, SECOND._replace(end=3)], "offset and epoch name two records"),
        ([FIRST._replace(epoch=0), SECOND], "log matching"),
    ],
)
def test_logs(log: list[BatchView], name: str) -> None:
    raft_invariants, partition_invariants = RaftInvariants(), PartitionInvariants()
    raft_invariants.appended(1, None, [FIRST, SECOND])
    partition_invariants.appended(T, 1, FIRST, [SECOND])
    found = []
    try:
        raft_invariants.appended(2, None, log)
    except Violation as e:
        found.append(e.name)
    try:
        partition_invariants.appended(T, 2, log[0], log[1:])
    except Violation as e:
        found.append(e.name)
    assert found == ([] if name == "kept" else [name, name])


def test_a_compacted_batch_keeps_its_place_and_is_no_evidence_of_its_records() -> None:
    compacted = FIRST._replace(crc=None)
    for order in ([FIRST, compacted], [compacted, FIRST], [compacted, compacted, FIRST, compacted]):
        invariants = PartitionInvariants()
        for batch in order:
            invariants.appended(T, 1, None, [batch])
        with pytest.raises(Violation, match="offset and epoch name two records"):
            invariants.appended(T, 2, None, [FIRST._replace(crc=999)])
        with pytest.raises(Violation, match="offset and epoch name two records"):
            invariants.appended(T, 2, None, [compacted._replace(end=2)])


@pytest.mark.parametrize(
    ("changed_on_disk", "name"),
    [
        (SECOND._replace(epoch=3), "kept"),
        # Consumers would skip records.
        (SECOND._replace(base=5, end=6), "log matching"),
    ],
)
def test_a_copy_of_a_batch_whose_epoch_changed_on_a_disk_is_that_batch(
    changed_on_disk: BatchView, name: str
) -> None:
    third = BatchView(changed_on_disk.end, changed_on_disk.end + 1, 4, 102)
    invariants = PartitionInvariants()
    invariants.appended(T, 1, None, [FIRST, SECOND])
    original = invariants.as_appended(T, changed_on_disk)
    assert original == SECOND
    invariants.appended(T, 1, original, [third])
    found = []
    for start in ([FIRST, changed_on_disk, third], [changed_on_disk, third]):
        try:
            invariants.appended(T, 2, None, start[:1])
            invariants.appended(T, 2, start[0], start[1:])
        except Violation as e:
            found.append(e.name)
    assert found == ([] if name == "kept" else [name, name])
    # Another batch of that epoch at that offset is another record.
    with pytest.raises(Violation, match="offset and epoch name two records"):
        invariants.appended(T, 3, None, [SECOND._replace(crc=999)])


PARTITION = PartitionView(T, 1, 1, 1, (1, 2, 3), (1, 2), (), False)


def changed(**changes: Any) -> PartitionView:
    return PARTITION._replace(**{"partition_epoch": 2, **changes})


@pytest.mark.parametrize(
    ("after", "name"),
    [
        (PARTITION, "kept"),
        (changed(leader=2, leader_epoch=2), "kept"),
        (changed(leader=-1, leader_epoch=2, isr=()), "kept"),
        (changed(isr=(1, 4)), "ISR outside replicas"),
        (changed(leader=3), "leader outside ISR"),
        (changed(elr=(2,)), "ISR and ELR overlap"),
        (changed(isr=(1, 2, 3)), "fenced broker in ISR"),
        (changed(leader=2), "leader epoch did not rise"),
        (changed(leader_epoch=0), "leader epoch did not rise"),
        (changed(isr=(1,), partition_epoch=1), "leader epoch did not rise"),
        (changed(leader=4, leader_epoch=2, isr=(4,), replicas=(1, 2, 4)), "unclean leader"),
        # A reassignment ends with the change that lets its new replica in.
        (changed(leader=4, leader_epoch=2, isr=(4,), replicas=(2, 4)), "kept"),
        (changed(leader=4, leader_epoch=2, isr=(2,), replicas=(2, 4)), "leader outside ISR"),
        (changed(leader=4, leader_epoch=2, isr=(4,), replicas=(1, 2, 4), may_lose=True), "kept"),
        (changed(leader=4, leader_epoch=2, isr=(4,), replicas=(1, 2, 4), unclean=True), "unclean leader"),
    ],
)
def test_images(after: PartitionView, name: str) -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([PARTITION], {3})
    found = "kept"
    try:
        invariants.image_changed([after], {3})
    except Violation as e:
        found = e.name
    assert found == name


LEADERLESS = PARTITION._replace(leader=-1, isr=(), last_known=(2,))


@pytest.mark.parametrize(
    ("before", "leader", "name"),
    [
        (LEADERLESS, 1, "kept"),
        (LEADERLESS._replace(elr=(1,)), 2, "unclean leader"),
        (LEADERLESS._replace(unclean=True, elr=(1,)), 1, "kept"),
        (LEADERLESS._replace(unclean=True, elr=(1,)), 2, "unclean leader"),
        (LEADERLESS._replace(unclean=True), 3, "kept"),
    ],
)
def test_without_isr_and_elr_any_replica_may_lead(before: PartitionView, leader: int, name: str) -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([before], set())
    after = before._replace(leader=leader, leader_epoch=2, partition_epoch=2, isr=(leader,), unclean=True)
    found = "kept"
    try:
        invariants.image_changed([after._replace(elr=(), last_known=())], set())
    except Violation as e:
        found = e.name
    assert found == name


@pytest.mark.parametrize(
    ("node_id", "name"), [(1, "unclean replica eligible"), (2, "unclean replica eligible"), (3, "kept")]
)
def test_an_unclean_replica_is_not_eligible(node_id: int, name: str) -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([PARTITION._replace(isr=(1,), elr=(2,))], set())
    found = "kept"
    try:
        invariants.came_back_unclean(node_id)
    except Violation as e:
        found = e.name
    assert found == name


def test_a_deleted_topic_makes_no_replica_eligible() -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([PARTITION], set())
    invariants.image_changed([], set())
    invariants.came_back_unclean(1)


@pytest.mark.parametrize(
    ("partition", "replicas", "name"),
    [
        (PARTITION, [(1, 2, 2), (2, 2, 0), (3, 1, 1)], "kept"),
        (PARTITION, [(1, 2, 2), (2, 1, 1)], "candidate completeness"),
        (PARTITION, [(2, 1, 1), (1, 2, 2)], "candidate completeness"),
        (PARTITION._replace(elr=(3,)), [(1, 2, 2), (2, 2, 2), (3, 1, 1)], "candidate completeness"),
        (PARTITION._replace(unclean=True), [(1, 2, 2), (2, 1, 1)], "kept"),
        (PARTITION._replace(may_lose=True), [(1, 2, 2), (2, 1, 1)], "kept"),
        (PARTITION, [(1, 2, 3)], "high watermark above the end"),
    ],
)
def test_candidates(partition: PartitionView, replicas: list[tuple[int, int, int]], name: str) -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([partition], set())
    found = "kept"
    try:
        for node_id, end, high_watermark in replicas:
            invariants.replica_changed(ReplicaView(T, node_id, end, high_watermark, end))
    except Violation as e:
        found = e.name
    assert found == name


def test_committed_records_are_on_the_disks_of_all_candidates() -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([PARTITION], set())
    invariants.replica_changed(ReplicaView(T, 1, 2, 2, 2))
    with pytest.raises(Violation, match="committed, and not on the disk"):
        invariants.replica_changed(ReplicaView(T, 2, 2, 0, 1))


def test_a_replica_that_joins_the_isr_needs_the_committed_records() -> None:
    invariants = PartitionInvariants()
    invariants.image_changed([PARTITION], set())
    for node_id, end in ((1, 2), (2, 2), (3, 1)):
        invariants.replica_changed(ReplicaView(T, node_id, end, end, end))
    with pytest.raises(Violation, match="candidate completeness"):
        invariants.image_changed([changed(isr=(1, 2, 3))], set())


def test_a_log_is_not_cut_below_its_high_watermark() -> None:
    name = TopicPartition("events#id", 0)
    partitions = PartitionInvariants()
    view = PartitionView(name, 1, 1, 1, (1, 2), (1, 2), (), unclean=False)
    partitions.image_changed([view], set())
    partitions.kept(name, 2, 10, 10)
    with pytest.raises(Violation, match="cut below the high watermark"):
        partitions.kept(name, 2, 10, 9)
    partitions.image_changed([view._replace(unclean=True, partition_epoch=2)], set())
    partitions.kept(name, 2, 10, 9)


def test_an_unclean_leader_has_all_that_was_committed() -> None:
    name = TopicPartition("events#id", 0)
    partitions = PartitionInvariants()
    waiting = PartitionView(name, -1, 1, 1, (1, 2), (), (), unclean=False)
    partitions.image_changed([waiting], set())
    partitions.replica_changed(ReplicaView(name, 1, 10, 10, 10))
    partitions.replica_changed(ReplicaView(name, 2, 9, 9, 9))
    led = waiting._replace(leader_epoch=2, partition_epoch=2, unclean=True)
    with pytest.raises(Violation, match="incomplete leader"):
        partitions.image_changed([led._replace(leader=2, isr=(2,))], set())
    PartitionInvariants().image_changed([led._replace(leader=1, isr=(1,))], set())


def test_a_recovered_quorum_may_use_an_epoch_again_that_committed_nothing() -> None:
    invariants = RaftInvariants()
    for voter in (1, 2, 3):
        invariants.check(raft(voter))
    invariants.appended(1, None, [FIRST, SECOND])
    invariants.check(COMMITTED)
    invariants.appended(1, SECOND, [THIRD])
    invariants.check(raft(1, [FIRST, SECOND, THIRD], is_leader=True, epoch=2, high_watermark=2))
    invariants.recovered()
    other = THIRD._replace(crc=7)
    invariants.appended(2, SECOND, [other])
    invariants.check(raft(2, [FIRST, SECOND, other], is_leader=True, epoch=2, high_watermark=2))
    with pytest.raises(Violation, match="offset and epoch name two records"):
        invariants.appended(2, FIRST, [SECOND._replace(crc=8)])
