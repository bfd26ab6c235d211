"""Invariants that hold inside a cluster after every event, by the names of the design.

The checks get views of the brokers' state in memory and on disk: one node at a time, and only changes
(`observation`). They keep the history that they need. They do not depend on brokers, so a test can pass views
that break each rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.batch_names import BatchNames, BatchView
from penstock.testing.simulation.checkers import Violation

__all__ = ["BatchView", "PartitionInvariants", "PartitionView", "RaftInvariants", "RaftView", "ReplicaView"]


class RaftView(NamedTuple):
    """One voter or observer of the metadata quorum."""

    node_id: int
    epoch: int
    is_leader: bool
    #: in a pre-vote: the same as long as it is the same one; None outside of one
    pre_vote: Hashable | None
    #: in this epoch, as on the disk
    voted_for: int | None
    #: the log, from its start on
    batches: Sequence[BatchView]
    end: int
    high_watermark: int
    flushed_end: int
    #: 0 if there is no snapshot
    snapshot_end: int
    #: whose majority commits, as the node's log has it
    voters: AbstractSet[int]


class PartitionView(NamedTuple):
    """A partition as a committed image has it; `leader` is -1 for none."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    #: rises with every change
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int]
    #: whether its leader may lack records by its own account
    unclean: bool
    #: the last leader of partitions without a leader
    last_known: Sequence[int] = ()
    #: whether its topic would rather lose records than wait
    may_lose: bool = False


class ReplicaView(NamedTuple):
    """One replica's log."""

    partition: TopicPartition
    node_id: int
    end: int
    high_watermark: int
    #: up to where its disk has it, where acknowledgements wait for that; else its end
    safe_end: int


class RaftInvariants:
    """The metadata quorum's rules (Raft figure 3, KIP-595, KIP-630, KIP-996)."""

    def __init__(self) -> None:
        self._names = BatchNames()
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._high_watermarks: dict[int, int] = {}
        #: of all nodes, dead ones included, because their disks keep the data
        self._flushed: dict[int, int] = {}
        #: base offset -> the batch that is committed there, which never changes
        self._committed: dict[int, BatchView] = {}
        self._committed_end = 0
        #: the epoch in which the last of it was committed, and by whose majority
        self._commit_epoch = 0
        self._commit_voters: AbstractSet[int] = frozenset()
        self._pre_votes: dict[int, tuple[Hashable, tuple[int, int | None]]] = {}
        #: nodes whose disks were tampered with
        self._tampered: set[int] = set()

    @property
    def committed_end(self) -> int:
        """Up to where the log is committed, as far as any node ever said."""
        return self._committed_end

    def tampered(self, node_id: int) -> None:
        """A node's disk has been changed from outside: it may have forgotten its votes and its log."""
        self._tampered.add(node_id)
        for key in [key for key in self._votes if key[0] == node_id]:
            del self._votes[key]

    def recovered(self) -> None:
        """An operator has recovered the quorum from one node's log: uncommitted records are forgotten.

        Epochs that only other nodes had heard of may be used a second time.
        """
        self._leaders.clear()
        self._votes.clear()
        self._names.forget(self._committed_end)
        # One node has all that was committed: a majority of the former voters need not have it any more.
        self._commit_voters = frozenset()

    def appended(self, node_id: int, before: BatchView | None, batches: Sequence[BatchView]) -> None:
        """A node's log has `batches` now, behind `before`."""
        self._names.check(f"metadata log of {node_id}", before, batches)

    def check(self, node: RaftView) -> None:
        """A node has changed."""
        flushed = self._flushed.get(node.node_id, 0) if node.node_id in self._tampered else 0
        self._flushed[node.node_id] = max(flushed, node.flushed_end)
        self._one_leader_per_epoch(node)
        self._one_vote_per_epoch(node)
        self._pre_vote_changes_nothing(node)
        self._high_watermark(node)
        self._committed_stays(node)
        if node.snapshot_end > node.high_watermark:
            raise Violation(
                "snapshot above high watermark",
                f"{node.node_id}: {node.snapshot_end} > {node.high_watermark}",
            )
        self._leader_completeness(node)

    def restarted(self, node_id: int) -> None:
        """A node forgets its high watermark with its process; its votes it must not forget."""
        self._high_watermarks.pop(node_id, None)
        self._pre_votes.pop(node_id, None)

    def _one_leader_per_epoch(self, node: RaftView) -> None:
        if node.is_leader:
            leader = self._leaders.setdefault(node.epoch, node.node_id)
            if leader != node.node_id:
                raise Violation("two leaders in an epoch", f"{leader} and {node.node_id} in {node.epoch}")

    def _one_vote_per_epoch(self, node: RaftView) -> None:
        if node.voted_for is not None:
            vote = self._votes.setdefault((node.node_id, node.epoch), node.voted_for)
            if vote != node.voted_for:
                raise Violation(
                    "two votes in an epoch", f"{node.node_id} for {vote} and {node.voted_for} in {node.epoch}"
                )

    def _pre_vote_changes_nothing(self, node: RaftView) -> None:
        state = node.epoch, node.voted_for
        if node.pre_vote is None:
            self._pre_votes.pop(node.node_id, None)
            return
        known, before = self._pre_votes.setdefault(node.node_id, (node.pre_vote, state))
        if known != node.pre_vote:
            self._pre_votes[node.node_id] = node.pre_vote, state
        elif before != state:
            raise Violation("pre-vote changed state", f"{node.node_id}: {before} to {state}")

    def _high_watermark(self, node: RaftView) -> None:
        """Monotone, within the log, on the disks of a majority, and moved by a record of the leader's own."""
        known = self._high_watermarks.get(node.node_id, 0)
        if node.high_watermark < known:
            raise Violation("high watermark fell", f"{node.node_id}: {known} to {node.high_watermark}")
        if node.end < node.high_watermark:
            raise Violation(
                "truncated below high watermark", f"{node.node_id}: {node.end} < {node.high_watermark}"
            )
        voters = node.voters if node.high_watermark > self._committed_end else self._commit_voters
        ends = sorted((self._flushed.get(voter, 0) for voter in voters), reverse=True)
        if ends and node.high_watermark > ends[len(ends) // 2]:
            raise Violation(
                "high watermark not flushed", f"{node.node_id}: {node.high_watermark}, flushed {ends}"
            )
        if node.is_leader and node.high_watermark > max(known, self._committed_end):
            last = next((b for b in reversed(node.batches) if b.end <= node.high_watermark), None)
            if last is not None and last.epoch != node.epoch:
                raise Violation(
                    "committed a record of another epoch", f"{node.node_id} in {node.epoch}: {last}"
                )
        self._high_watermarks[node.node_id] = node.high_watermark

    def _committed_stays(self, node: RaftView) -> None:
        for batch in reversed(node.batches):
            if batch.end > node.high_watermark:
                continue
            known = self._committed.setdefault(batch.base, batch)
            if known != batch:
                raise Violation("committed record changed", f"{node.node_id}: {known}, now {batch}")
            if batch.end <= self._committed_end:
                # Log matching: all logs with this batch have the same batches before it.
                break
        if node.high_watermark > self._committed_end:
            self._committed_end, self._commit_epoch = node.high_watermark, node.epoch
            self._commit_voters = node.voters

    def _leader_completeness(self, node: RaftView) -> None:
        if not node.is_leader or node.epoch < self._commit_epoch:
            return
        if node.end < self._committed_end:
            raise Violation(
                "leader completeness",
                f"{node.node_id} leads {node.epoch} up to {node.end}, {self._committed_end} is committed",
            )
        for batch in reversed(node.batches):
            if batch.end <= self._committed_end:
                if self._committed.get(batch.base, batch) != batch:
                    raise Violation("leader completeness", f"{node.node_id} leads {node.epoch} with {batch}")
                break


class PartitionInvariants:
    """The rules of replicated partitions (KIP-101, 497, 966)."""

    def __init__(self) -> None:
        self._names: dict[TopicPartition, BatchNames] = {}
        self._partitions: dict[TopicPartition, PartitionView] = {}
        self._replicas: dict[TopicPartition, dict[int, ReplicaView]] = {}
        #: the highest that any replica ever called committed
        self._committed: dict[TopicPartition, int] = {}
        #: replicas (node and partition) whose files were changed from outside
        self._tampered: set[tuple[int, TopicPartition]] = set()
        self._fenced: AbstractSet[int] = frozenset()

    def tampered(
        self, replicas: AbstractSet[tuple[int, TopicPartition]], kept: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Files of `replicas` were changed from outside; untampered ones hold each partition up to `kept`.

        Returns where offsets begin that were committed and that none of those holds.
        """
        self._tampered |= replicas
        lost = {}
        for name, committed in self._committed.items():
            end = kept.get(_plain(name), 0)
            if end < committed:
                self._committed[name] = lost[_plain(name)] = end
        return lost

    def is_tampered(self, node_id: int, name: TopicPartition) -> bool:
        return bool(self._tampered) and (node_id, _plain(name)) in self._tampered

    def appended(
        self, partition: TopicPartition, node_id: int, before: BatchView | None, batches: Sequence[BatchView]
    ) -> None:
        """A replica has `batches` now, behind `before`."""
        self._names.setdefault(partition, BatchNames()).check(f"{partition} on {node_id}", before, batches)

    def as_appended(self, partition: TopicPartition, batch: BatchView) -> BatchView:
        """The original of `batch`, which comes from a disk that was tampered with."""
        return self._names.setdefault(partition, BatchNames()).as_appended(batch)

    def kept(self, name: TopicPartition, node_id: int, committed: int, end: int) -> None:
        """A log had batches up to `committed`, below its high watermark, and ends at `end` now."""
        partition = self._partitions.get(name)
        if partition is None or partition.unclean or partition.may_lose:
            return
        if end < committed:
            raise Violation("cut below the high watermark", f"{name} on {node_id}: {committed} to {end}")

    def replica_changed(self, replica: ReplicaView) -> None:
        """The log end, the synced end or the high watermark has moved."""
        partition = replica.partition
        self._replicas.setdefault(partition, {})[replica.node_id] = replica
        if replica.high_watermark > replica.end:
            raise Violation("high watermark above the end", f"{replica}")
        self._committed[partition] = max(self._committed.get(partition, 0), replica.high_watermark)
        self._candidates_are_complete(partition)

    def image_changed(self, partitions: Sequence[PartitionView], fenced: AbstractSet[int]) -> None:
        """There is a newer image than any before."""
        self._fenced = fenced
        names = {partition.partition for partition in partitions}
        for gone in [name for name in self._partitions if name not in names]:
            del self._partitions[gone]
        for partition in partitions:
            _membership(partition, fenced)
            before = self._partitions.get(partition.partition)
            if before != partition:
                if before is not None:
                    _epoch_rises(before, partition)
                    _leader_was_eligible(before, partition)
                self._partitions[partition.partition] = partition
                self._candidates_are_complete(partition.partition)
                if before is None or before.leader != partition.leader:
                    self._unclean_leader_is_complete(partition)

    def came_back_unclean(self, node_id: int) -> None:
        """A broker has registered that did not end its last life in good order."""
        for partition in self._partitions.values():
            if node_id in (*partition.isr, *partition.elr):
                raise Violation("unclean replica eligible", f"{node_id} in {partition}")

    def _candidates_are_complete(self, name: TopicPartition) -> None:
        """Every node that can win an election has all records that any node has ever treated as committed."""
        partition = self._partitions.get(name)
        if partition is None or partition.unclean or partition.may_lose:
            return
        committed, replicas = self._committed.get(name, 0), self._replicas.get(name, {})
        for node_id in (*partition.isr, *partition.elr):
            replica = replicas.get(node_id)
            if replica is None or (node_id in self._fenced and self.is_tampered(node_id, name)):
                continue
            if min(replica.end, replica.safe_end) < committed:
                rule = (
                    "candidate completeness" if replica.end < committed else "committed, and not on the disk"
                )
                raise Violation(rule, f"{name}: {replica}, committed up to {committed}, {partition}")

    def _unclean_leader_is_complete(self, partition: PartitionView) -> None:
        """Where ISR and ELR are empty the most complete replica leads, which has all that was committed."""
        replica = self._replicas.get(partition.partition, {}).get(partition.leader)
        if replica is None or not partition.unclean or partition.may_lose:
            return
        committed = self._committed.get(partition.partition, 0)
        if replica.end < committed:
            raise Violation("incomplete leader", f"{replica}, committed up to {committed}, {partition}")


def _plain(name: TopicPartition) -> TopicPartition:
    """The name as files have it, without the topic's id."""
    return TopicPartition(name.topic.rpartition("#")[0], name.partition)


def _membership(partition: PartitionView, fenced: AbstractSet[int]) -> None:
    isr, elr = set(partition.isr), set(partition.elr)
    if not isr <= set(partition.replicas):
        raise Violation("ISR outside replicas", f"{partition.partition}: {isr} of {partition.replicas}")
    if partition.leader >= 0 and partition.leader not in isr:
        raise Violation("leader outside ISR", f"{partition.partition}: {partition.leader} of {isr}")
    if isr & elr:
        raise Violation("ISR and ELR overlap", f"{partition.partition}: {isr & elr}")
    if isr & fenced:
        raise Violation("fenced broker in ISR", f"{partition.partition}: {isr & fenced}")


def _epoch_rises(before: PartitionView, after: PartitionView) -> None:
    """A new leader has a new epoch, every change a new partition epoch, and neither ever falls."""
    same_leader = before.leader == after.leader
    if (
        after.leader_epoch < before.leader_epoch + (not same_leader)
        or after.partition_epoch <= before.partition_epoch
    ):
        raise Violation("leader epoch did not rise", f"{before}, then {after}")


def _leader_was_eligible(before: PartitionView, after: PartitionView) -> None:
    """Checks one change: the new leader was in the ISR or the ELR. Any other leader is an unclean one.

    An unclean recovery may choose any replica, but only where neither the ISR nor the ELR has one.
    """
    if after.partition_epoch != before.partition_epoch + 1 or after.leader < 0 or after.may_lose:
        return
    recovers = after.unclean and not before.isr and not before.elr
    eligible = set(before.replicas) if recovers else set()
    if before.unclean or not after.unclean:
        eligible |= {before.leader, *before.isr, *before.elr}
    if before.leader >= 0 and (before.leader not in after.replicas or before.leader in after.isr):
        # The change that completes a reassignment also adds the new leader to the ISR. So does an ISR change
        # that a leader with a wrong clock requests.
        eligible |= set(after.isr)
    if after.leader not in eligible:
        raise Violation("unclean leader", f"{before}, then {after}")
