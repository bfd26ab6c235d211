"""A controller for one partition: ISR, eligible leader replicas (KIP-966), broker epochs, clean elections."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.replication.leader import IsrProposal
from tests.replication.leaders import Registered

NOBODY = -1


class PartitionMetadata(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    elr: frozenset[int]

    @property
    def candidates(self) -> frozenset[int]:
        """The eligible replicas: each of them must have everything that is committed."""
        return self.isr | self.elr


class ModelController:
    """Decides at once; the world decides which node learns it when."""

    def __init__(self, replicas: range, min_isr: int) -> None:
        self.min_isr = min_isr
        self.brokers = {broker: Registered(broker) for broker in replicas}
        self._next_broker_epoch = 100
        self.partition = PartitionMetadata(replicas[0], 0, 0, frozenset(replicas), frozenset())

    def alter_partition(self, broker: int, broker_epoch: int, proposal: IsrProposal) -> ErrorCode:
        if self.brokers[broker].epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if proposal.leader_epoch != self.partition.leader_epoch or broker != self.partition.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != self.partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in proposal.isr:
            registered = self.brokers[member.broker]
            if registered.fenced or member.broker_epoch not in (-1, registered.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        self._change(frozenset(member.broker for member in proposal.isr))
        return ErrorCode.NONE

    def fence(self, broker: int) -> None:
        self.brokers[broker].fenced = True
        self._change(self.partition.isr - {broker})

    def register(self, broker: int) -> int:
        """A new incarnation, after an unclean end: the losses of its log are unknown."""
        self.fence(broker)
        self._next_broker_epoch += 1
        self.brokers[broker] = Registered(self._next_broker_epoch, fenced=True)
        self._change(self.partition.isr - {broker}, unclean=broker)
        return self._next_broker_epoch

    def unfence(self, broker: int) -> None:
        self.brokers[broker].fenced = False
        self._change(self.partition.isr)

    def _change(self, isr: frozenset[int], unclean: int = NOBODY) -> None:
        old = self.partition
        elr = frozenset() if len(isr) >= self.min_isr else (old.candidates - isr) - {unclean}
        leader = old.leader if old.leader in isr else NOBODY
        if leader == NOBODY:
            for choice in sorted(isr) + sorted(elr):
                if not self.brokers[choice].fenced:
                    leader, isr, elr = choice, isr | {choice}, elr - {choice}
                    break
        moved = leader != old.leader
        if moved or (isr, elr) != (old.isr, old.elr):
            self.partition = PartitionMetadata(
                leader, old.leader_epoch + moved, old.partition_epoch + 1, isr, elr
            )
