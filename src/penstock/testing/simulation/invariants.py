"""What must hold inside a cluster after every event, by the names that the design gives it.

The checks read a `ClusterView`, a snapshot of what brokers have in memory and on their disks, and remember
what they need from one to the next. They know nothing of brokers, so they can be shown views that break each
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation

__all__ = ["ClusterView", "PartitionInvariants", "PartitionView", "RaftInvariants", "RaftView", "ReplicaView"]


class RaftView(Protocol):
    """One voter or observer of the metadata quorum."""

    @property
    def node_id(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_prospective(self) -> bool:
        """In a pre-vote."""
        ...

    @property
    def epoch(self) -> int: ...
    @property
    def voted_for(self) -> int | None:
        """In this epoch, as on the disk."""
        ...

    @property
    def log(self) -> Sequence[tuple[int, int]]:
        """(offset, epoch) of each record, in order."""
        ...

    @property
    def high_watermark(self) -> int: ...
    @property
    def flushed_end(self) -> int: ...
    @property
    def snapshot_end(self) -> int:
        """0 if there is no snapshot."""
        ...


class PartitionView(Protocol):
    """A partition as the controller's committed image has it."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def leader(self) -> int:
        """-1 for none."""
        ...

    @property
    def leader_epoch(self) -> int: ...
    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...
    @property
    def elr(self) -> Sequence[int]: ...
    @property
    def unclean_allowed(self) -> bool: ...


class ReplicaView(Protocol):
    """One replica's log."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def node_id(self) -> int: ...
    @property
    def records(self) -> Mapping[int, tuple[int, int]]:
        """offset -> (leader epoch, checksum)."""
        ...

    @property
    def high_watermark(self) -> int: ...


class ClusterView(Protocol):
    """Everything that is looked at; nodes that are down are left out."""

    @property
    def voters(self) -> AbstractSet[int]: ...
    @property
    def raft(self) -> Sequence[RaftView]: ...
    @property
    def partitions(self) -> Sequence[PartitionView]: ...
    @property
    def replicas(self) -> Sequence[ReplicaView]: ...
    @property
    def fenced(self) -> AbstractSet[int]: ...


class RaftInvariants:
    """The metadata quorum's rules (Raft figure 3, KIP-595, KIP-630, KIP-996)."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._high_watermarks: dict[int, int] = {}
        #: what was below some high watermark: offset -> epoch, for ever
        self._committed: dict[int, int] = {}
        self._before_prevote: dict[int, tuple[int, int | None]] = {}

    def check(self, view: ClusterView) -> None:
        for node in view.raft:
            self._one_leader_per_epoch(node)
            self._one_vote_per_epoch(node)
            self._prevote_changes_nothing(node)
            self._committed_stays(node)
            if node.snapshot_end > node.high_watermark:
                raise Violation(
                    "snapshot above high watermark",
                    f"{node.node_id}: {node.snapshot_end} > {node.high_watermark}",
                )
        _log_matching(view.raft)
        self._high_watermark_is_flushed(view)

    def restarted(self, node_id: int) -> None:
        """A node forgets its high watermark with its process; its votes it must not forget."""
        self._high_watermarks.pop(node_id, None)

    def _one_leader_per_epoch(self, node: RaftView) -> None:
        if node.is_leader:
            leader = self._leaders.setdefault(node.epoch, node.node_id)
            if leader != node.node_id:
                raise Violation("two leaders in an epoch", f"{leader} and {node.node_id} in {node.epoch}")
            missing = [o for o, epoch in self._committed.items() if _epoch_at(node, o) not in (epoch, None)]
            end = node.log[-1][0] + 1 if node.log else node.snapshot_end
            if missing or any(offset >= end for offset in self._committed):
                raise Violation(
                    "leader completeness", f"{node.node_id} leads {node.epoch} without committed records"
                )

    def _one_vote_per_epoch(self, node: RaftView) -> None:
        if node.voted_for is not None:
            vote = self._votes.setdefault((node.node_id, node.epoch), node.voted_for)
            if vote != node.voted_for:
                raise Violation(
                    "two votes in an epoch", f"{node.node_id} for {vote} and {node.voted_for} in {node.epoch}"
                )

    def _prevote_changes_nothing(self, node: RaftView) -> None:
        state = node.epoch, node.voted_for
        if not node.is_prospective:
            self._before_prevote[node.node_id] = state
        elif (
            self._before_prevote.setdefault(node.node_id, state)[0] < node.epoch
            and node.voted_for == node.node_id
        ):
            raise Violation("pre-vote changed state", f"{node.node_id}: {state}")

    def _committed_stays(self, node: RaftView) -> None:
        """The high watermark is monotone, and nobody truncates below it."""
        before = self._high_watermarks.get(node.node_id, 0)
        if node.high_watermark < before:
            raise Violation("high watermark fell", f"{node.node_id}: {before} to {node.high_watermark}")
        self._high_watermarks[node.node_id] = node.high_watermark
        end = node.log[-1][0] + 1 if node.log else node.snapshot_end
        if end < node.high_watermark:
            raise Violation(
                "truncated below high watermark", f"{node.node_id}: {end} < {node.high_watermark}"
            )
        for offset, epoch in node.log:
            if offset < node.high_watermark and self._committed.setdefault(offset, epoch) != epoch:
                raise Violation(
                    "committed record changed", f"{offset}: epoch {self._committed[offset]}, now {epoch}"
                )

    def _high_watermark_is_flushed(self, view: ClusterView) -> None:
        """At most what a majority has flushed; only while all voters are there to be looked at."""
        ends = sorted((n.flushed_end for n in view.raft if n.node_id in view.voters), reverse=True)
        majority = len(view.voters) // 2 + 1
        if len(ends) == len(view.voters) and ends:
            for node in view.raft:
                if node.high_watermark > ends[majority - 1]:
                    raise Violation(
                        "high watermark not flushed", f"{node.node_id}: {node.high_watermark}, flushed {ends}"
                    )


def _epoch_at(node: RaftView, offset: int) -> int | None:
    """The epoch of the record at `offset`, None if the log does not reach there (a snapshot may)."""
    if not node.log or not node.log[0][0] <= offset <= node.log[-1][0]:
        return None
    return node.log[offset - node.log[0][0]][1]


def _log_matching(nodes: Sequence[RaftView]) -> None:
    """Where two logs have the same epoch at an offset, they are the same up to there (Raft 5.3)."""
    for i, one in enumerate(nodes):
        for other in nodes[i + 1 :]:
            theirs = dict(other.log)
            shared = [(offset, epoch, theirs[offset]) for offset, epoch in one.log if offset in theirs]
            last_same = max((i for i, (_, a, b) in enumerate(shared) if a == b), default=-1)
            for offset, mine, its in shared[: last_same + 1]:
                if mine != its:
                    raise Violation("log matching", f"{one.node_id} and {other.node_id} differ at {offset}")


class PartitionInvariants:
    """The rules of replicated partitions (KIP-101, 497, 966)."""

    def __init__(self) -> None:
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        #: (partition, offset, epoch) -> checksum, for ever
        self._named: dict[tuple[TopicPartition, int, int], int] = {}

    def check(self, view: ClusterView) -> None:
        replicas: dict[TopicPartition, dict[int, ReplicaView]] = {}
        for replica in view.replicas:
            replicas.setdefault(replica.partition, {})[replica.node_id] = replica
            self._names_one_record(replica)
        for partition in view.partitions:
            _membership(partition, view.fenced)
            self._epoch_rises(partition)
            _isr_has_committed(partition, replicas.get(partition.partition, {}))

    def _names_one_record(self, replica: ReplicaView) -> None:
        for offset, (epoch, crc) in replica.records.items():
            known = self._named.setdefault((replica.partition, offset, epoch), crc)
            if known != crc:
                raise Violation(
                    "offset and epoch name two records",
                    f"{replica.partition} {offset}/{epoch} on {replica.node_id}",
                )

    def _epoch_rises(self, partition: PartitionView) -> None:
        """A new leader has a new epoch, and epochs never fall."""
        leader, epoch = self._leaders.get(partition.partition, (partition.leader, -1))
        if partition.leader_epoch < epoch or (partition.leader != leader and partition.leader_epoch == epoch):
            raise Violation(
                "leader epoch did not rise",
                f"{partition.partition}: {leader}/{epoch}, then {partition.leader}/{partition.leader_epoch}",
            )
        self._leaders[partition.partition] = partition.leader, partition.leader_epoch


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


def _isr_has_committed(partition: PartitionView, replicas: Mapping[int, ReplicaView]) -> None:
    """Whoever may be elected has everything that anyone calls committed."""
    if partition.unclean_allowed or not replicas:
        return
    high_watermark = max(replica.high_watermark for replica in replicas.values())
    for node_id in [*partition.isr, *partition.elr]:
        replica = replicas.get(node_id)
        if replica is not None:
            end = max(replica.records, default=-1) + 1
            if end < high_watermark:
                raise Violation(
                    "candidate completeness",
                    f"{partition.partition}: {node_id} ends at {end}, committed up to {high_watermark}",
                )
