"""Invariants of transactions inside brokers: last stable offsets, and the end of open transactions.

`StableOffsets` gets views of replicas after every event, one broker at a time. It does not depend on brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.model.ids import TopicPartition
from penstock.storage.log import Log
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.process import Process
from penstock.transactions.shard import TransactionFilter
from penstock.transactions.states import PREPARED, TransactionState
from penstock.wire.slicing import exhausted

__all__ = ["StableOffsets", "StableView", "TransactionObservation", "open_transactions"]

#: a partition, its log, high watermark, first unstable and first open offset; its role and epoch
_State: TypeAlias = tuple[Partition, Log, int, int | None, int | None, bool, int]
_UNDECIDED: Final = TransactionFilter(PREPARED | {TransactionState.ONGOING}, (), -1)


class StableView(NamedTuple):
    """The last stable offset of one replica."""

    partition: TopicPartition
    node_id: int
    #: the same as long as the broker runs with the same log
    life: int
    last_stable_offset: int
    high_watermark: int
    #: the first offset of the first open transaction, None if there is none
    first_open: int | None
    leads: bool
    leader_epoch: int


class StableOffsets:
    """A last stable offset never goes back: what a reader of committed records has passed is decided."""

    def __init__(self) -> None:
        self._last: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        #: the highest that a leader had, and its epoch
        self._published: dict[TopicPartition, tuple[int, int]] = {}

    def check(self, view: StableView) -> None:
        offset, name = view.last_stable_offset, view.partition
        life, known = self._last.get((name, view.node_id), (view.life, 0))
        if life == view.life and offset < known:
            raise Violation("last stable offset fell", f"from {known}: {view}")
        self._last[name, view.node_id] = view.life, offset
        if offset > view.high_watermark:
            raise Violation("last stable offset above the high watermark", f"{view}")
        if not view.leads:
            return
        published, epoch = self._published.get(name, (0, -1))
        if view.leader_epoch >= epoch:
            if view.first_open is not None and view.first_open < published:
                raise Violation("last stable offset went back", f"{published} was published: {view}")
            self._published[name] = max(offset, published), view.leader_epoch


class TransactionObservation:
    """Reads replicas with transactions after each step of their broker."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._stable = StableOffsets()
        #: state at the last look, and a number for each log that any broker has opened
        self._seen: dict[Partition, _State] = {}
        #: by node, the states of all its partitions with transactions after its last step
        self._states: dict[int, list[_State]] = {}
        self._lives: dict[Log, int] = {}

    def after_step(self, process: Process) -> None:
        """Raises Violation."""
        node = self._nodes.get(process.host)
        if node is None or node.process is not process or node.program is None or process.is_dead:
            return
        states: list[_State] = [
            (
                partition,
                log,
                log.high_watermark,
                producers.first_unstable,
                next(iter(producers.ongoing)) if producers.ongoing else None,
                partition.leading,
                partition.leader_epoch,
            )
            for partition in node.program.stages.storage.partitions
            if (producers := (log := partition.log).producers).had_transactions
        ]
        if self._states.get(node.id) == states:  # as after most steps
            return
        self._states[node.id] = states
        for state in states:
            partition = state[0]
            if self._seen.get(partition) != state:
                self._seen[partition] = state
                self._check(node.id, partition)

    def _check(self, node_id: int, partition: Partition) -> None:
        log = partition.log
        self._stable.check(
            StableView(
                TopicPartition(partition.topic, partition.index),
                node_id,
                self._lives.setdefault(log, len(self._lives)),
                log.last_stable_offset,
                log.high_watermark,
                next(iter(log.producers.ongoing), None),
                partition.leading,
                partition.leader_epoch,
            )
        )


def open_transactions(nodes: Sequence[Node]) -> list[str]:
    """The open and undecided transactions of all leaders and coordinators."""
    found = []
    for node in nodes:
        if node.broker is None:
            found.append(f"{node.name} is down")
            continue
        found += _of_partitions(node.broker)
        found += _of_coordinator(node.broker)
    return found


def _of_partitions(broker: Broker) -> list[str]:
    return [
        f"{partition.name} on {broker.stages.config.node_id}: {partition.log.producers.ongoing}"
        for partition in broker.stages.storage.partitions
        if partition.leading and partition.log.producers.ongoing
    ]


def _of_coordinator(broker: Broker) -> list[str]:
    runtime = broker.stages.coordinators.transactions.runtime
    return [
        f"{listed.transactional_id} on {broker.stages.config.node_id}: {listed.transaction_state}"
        for index in runtime.indexes()
        if (shard := runtime.shard(index)) is not None
        for listed in exhausted(shard.listing(_UNDECIDED))
    ]
