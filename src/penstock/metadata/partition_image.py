"""One partition in the cluster image: its replicas, its leader, and the reassignment that is under way.

Changed by the records of `ClusterImage.apply` alone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

from penstock.model.ids import TopicId
from penstock.wire.metadata_records import PartitionChangeRecord, PartitionRecord

__all__ = ["NO_LEADER", "RECOVERED", "RECOVERING", "Origin", "PartitionImage", "PartitionKey"]

NO_LEADER: Final = -1
#: `PartitionImage.leader_recovery`: whether the leader may lack records that were acknowledged
RECOVERED: Final = 0
RECOVERING: Final = 1
_NO_CHANGE: Final = -2
_SAME_RECOVERY: Final = -1

PartitionKey: TypeAlias = tuple[TopicId, int]
#: in place of each empty list of a record: most partitions have four, and a list takes 56 bytes
_EMPTY: Final[list[int]] = []


class Origin(IntEnum):
    """The origin of a reassignment."""

    #: a request, as AlterPartitionReassignments
    REQUEST = 0
    #: `penstock.self.healing.enable`: a broker is gone
    REBUILD = 1
    #: `penstock.balance.new.brokers`: a broker has far fewer replicas than the others
    SHARE = 2
    #: `penstock.balance`: measured load
    LOAD = 3


class PartitionImage:
    """The replicas and the leader of one partition. `leader` is -1 while there is none.

    Invariants, kept by the decisions: the ISR is part of the replicas and holds the leader; the eligible
    leader replicas (`elr`, KIP-966) are replicas outside the ISR that hold all below the high watermark.
    """

    __slots__ = (
        "adding",
        "directories",
        "elr",
        "index",
        "isr",
        "last_known_leader",
        "leader",
        "leader_epoch",
        "leader_recovery",
        "origin",
        "partition_epoch",
        "removing",
        "replicas",
        "topic_id",
    )

    def __init__(self, record: PartitionRecord) -> None:
        self.topic_id = TopicId(record.topic_id)
        self.index = record.partition_id
        self.replicas = record.replicas
        self.isr = record.isr
        self.adding = record.adding_replicas or _EMPTY
        self.removing = record.removing_replicas or _EMPTY
        self.elr = record.eligible_leader_replicas or _EMPTY
        #: the last leader, while there is none; a list of at most one node, as in its record
        self.last_known_leader = record.last_known_elr or _EMPTY
        self.leader = record.leader
        self.leader_recovery = record.leader_recovery_state
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        self.directories = record.directories
        #: what started the reassignment; REQUEST while there is none
        self.origin = record.reassignment_origin

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.index

    @property
    def counted_on(self) -> set[int]:
        """The replicas that may lead by what the controller knows of them."""
        return {*self.isr, *self.elr, *self.last_known_leader}

    @property
    def led_epoch(self) -> int:
        """The newest leader epoch that can have had a leader; the loss of a leader begins an epoch, too."""
        return self.leader_epoch if self.leader != NO_LEADER else self.leader_epoch - 1

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def change(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None:
            self.isr = record.isr
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.adding_replicas is not None:
            self.adding = record.adding_replicas or _EMPTY
        if record.removing_replicas is not None:
            self.removing = record.removing_replicas or _EMPTY
        if record.eligible_leader_replicas is not None:
            self.elr = record.eligible_leader_replicas or _EMPTY
        if record.last_known_elr is not None:
            self.last_known_leader = record.last_known_elr or _EMPTY
        if record.directories is not None:
            self.directories = record.directories
        if record.leader_recovery_state != _SAME_RECOVERY:
            self.leader_recovery = record.leader_recovery_state
        if record.leader != _NO_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        self.partition_epoch += 1
        self._change_origin(record)

    def _change_origin(self, record: PartitionChangeRecord) -> None:
        """A controller of an older version writes no origin: its reassignments count as requests."""
        if record.reassignment_origin >= 0:
            self.origin = record.reassignment_origin
        elif record.adding_replicas is not None or record.removing_replicas is not None:
            self.origin = Origin.REQUEST
        if not self.reassigning:
            self.origin = Origin.REQUEST
