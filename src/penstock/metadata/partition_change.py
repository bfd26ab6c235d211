"""Computes the record that changes one partition to a wanted state.

Every decision that touches a partition goes through `PartitionChange`, so these rules are in one place:

- A reassignment ends as soon as the wanted ISR allows it.
- A replica that leaves an ISR below the minimum becomes an eligible leader replica (ELR, KIP-966): nothing is
  acknowledged below the minimum, so it has all acknowledged records. An ISR with the minimum needs no ELR.
- A leader comes from the ISR; from the ELR when the ISR is empty. If both are empty, the only replica leads;
  of several, the one that `unclean_recovery` has chosen. The last two may lack records: such a leader is
  alone in the ISR and marked as recovering.
- Every change of leader, and every loss of a replica, starts a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final, NamedTuple

from penstock.metadata.image import NO_LEADER, RECOVERING, PartitionImage
from penstock.model.ids import NO_TOPIC_ID
from penstock.wire.metadata_records import PartitionChangeRecord

__all__ = ["Election", "PartitionChange"]

_NO_CHANGE: Final = -2


class Election(Enum):
    """The candidates of an election. A valid leader stays, except for the first replica if PREFERRED."""

    PREFERRED = 0
    ONLINE = 1
    #: a leader that is to be avoided does not stay, if another replica may lead
    ELSEWHERE = 2


class _Elected(NamedTuple):
    node: int
    unclean: bool = False


class PartitionChange:
    """A change in the making: set what is wanted, then `build` once."""

    __slots__ = (
        "_acceptable",
        "_elr",
        "_min_isr",
        "_partition",
        "adding",
        "avoided",
        "election",
        "emptied",
        "isr",
        "origin",
        "recovered_by",
        "recovery",
        "removing",
        "replicas",
        "unclean_shutdown",
    )

    def __init__(
        self,
        partition: PartitionImage,
        acceptable: Callable[[int], bool],
        min_isr: Callable[[int], int],
        election: Election = Election.ONLINE,
    ) -> None:
        self._partition = partition
        #: whether a broker may lead
        self._acceptable = acceptable
        #: the minimum ISR for a number of replicas
        self._min_isr = min_isr
        self.election = election
        self.isr: Sequence[int] = partition.isr
        self.replicas: Sequence[int] = partition.replicas
        self.adding: Sequence[int] = partition.adding
        self.removing: Sequence[int] = partition.removing
        self.recovery = partition.leader_recovery
        #: what started the reassignment (`Origin`)
        self.origin = partition.origin
        #: brokers after an unclean shutdown, which may have lost records: they are no eligible leaders
        self.unclean_shutdown: Collection[int] = ()
        #: brokers with an emptied directory: none of them counts as the last known leader
        self.emptied: Collection[int] = ()
        #: brokers that are elected only where no other replica may lead
        self.avoided: Collection[int] = ()
        #: the replica that an unclean recovery has chosen, for a partition without ISR and eligible leaders
        self.recovered_by = NO_LEADER
        self._elr: Sequence[int] = partition.elr

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None where nothing changes."""
        partition = self._partition
        record = PartitionChangeRecord(topic_id=partition.topic_id, partition_id=partition.index)
        self._settle_reassignment()
        self._elr = self._eligible()
        self._elect(record)
        if record.leader == _NO_CHANGE and not set(partition.replicas) <= set(self.replicas):
            # A replica that is no longer one must not go on acting on the epoch it knows.
            record.leader = partition.leader
        if list(self._elr) != partition.elr:
            record.eligible_leader_replicas = list(self._elr)
        if list(self.isr) != partition.isr:
            record.isr = list(self.isr)
        if self.recovery != partition.leader_recovery:
            record.leader_recovery_state = self.recovery
        self._note_last_leader(record)
        self._assign(record)
        return record if _says_something(record) else None

    def _settle_reassignment(self) -> None:
        """End the reassignment if the wanted ISR can carry the partition without what is being removed."""
        if not self.adding and not self.removing:
            return
        replicas = [node for node in self.replicas if node not in self.removing]
        isr = [node for node in self.isr if node not in self.removing]
        if not isr or not set(self.adding) <= set(isr):
            return
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            # Fewer replicas than before: the ISR must not shrink by more than was requested.
            return
        self.replicas, self.isr = replicas, isr
        self.adding = self.removing = ()

    def _eligible(self) -> Sequence[int]:
        if len(self.isr) >= self._min_isr(len(self.replicas)):
            return ()
        return [
            node
            for node in dict.fromkeys((*self._elr, *self._partition.isr))
            if node in self.replicas and node not in self.isr and node not in self.unclean_shutdown
        ]

    def _elect(self, record: PartitionChangeRecord) -> None:
        elected = self._elected()
        node = elected.node
        if node == self._partition.leader and (node == NO_LEADER or node in self.isr):
            return
        record.leader = node
        if elected.unclean:
            self.isr, self._elr, self.recovery = (node,), (), RECOVERING
        elif node in self._elr:
            self.isr = (node,)
            # The minimum may be smaller by now than when the others left: then this one is enough.
            self._elr = self._eligible()

    def _elected(self) -> _Elected:
        leader = self._partition.leader
        candidates = [leader, *sorted(self.replicas, key=self.avoided.__contains__)]
        if self.election is Election.PREFERRED and self.replicas[0] not in self.avoided:
            candidates.insert(0, self.replicas[0])
        elif self.election is Election.ELSEWHERE:
            candidates.sort(key=self.avoided.__contains__)
        for node in candidates:
            if self._may_lead(node):
                return _Elected(node)
        if self.recovered_by in self.replicas and self._acceptable(self.recovered_by):
            return _Elected(self.recovered_by, unclean=True)
        if not self.isr and not self._elr and len(self.replicas) == 1 and self._acceptable(self.replicas[0]):
            # No other replica could have more.
            return _Elected(self.replicas[0], unclean=True)
        return _Elected(NO_LEADER)

    def _may_lead(self, node: int) -> bool:
        return node in (self.isr or self._elr) and self._acceptable(node)

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        """Record the last leader when the partition loses its leader; clear it when there is one."""
        known = last = self._partition.last_known_leader
        if record.leader == NO_LEADER and self._partition.leader != NO_LEADER:
            last = [self._partition.leader]
        elif record.leader >= 0:
            last = []
        last = [node for node in last if node not in self.emptied]
        if last != known:
            record.last_known_elr = last

    def _assign(self, record: PartitionChangeRecord) -> None:
        partition = self._partition
        if list(self.replicas) != partition.replicas:
            record.replicas = list(self.replicas)
            known = dict(zip(partition.replicas, partition.directories, strict=False))
            record.directories = [known.get(node, NO_TOPIC_ID) for node in self.replicas]
        if list(self.removing) != partition.removing:
            record.removing_replicas = list(self.removing)
        if list(self.adding) != partition.adding:
            record.adding_replicas = list(self.adding)
        is_new = record.adding_replicas is not None or record.removing_replicas is not None
        if (self.adding or self.removing) and (is_new or self.origin != partition.origin):
            record.reassignment_origin = self.origin


def _says_something(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != _NO_CHANGE
        or record.isr is not None
        or record.replicas is not None
        or record.adding_replicas is not None
        or record.removing_replicas is not None
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
        or record.leader_recovery_state >= 0
        or record.reassignment_origin >= 0
    )
