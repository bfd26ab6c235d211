"""Reads share partitions of brokers after each step, and reports deliveries to the checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.model.ids import TopicPartition
from penstock.shares.partition import SharePartition
from penstock.shares.states import RecordState
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.share_checker import Delivery, ShareChecker

__all__ = ["ShareObservation"]

_State: TypeAlias = tuple[int, ...]


class _View:
    """A share partition at the last look."""

    __slots__ = ("counts", "locks", "share", "state")

    def __init__(self, share: SharePartition) -> None:
        self.share = share
        self.state: _State = ()
        self.locks: dict[int, Delivery] = {}
        #: the delivery count of each record that this leader has delivered
        self.counts: dict[int, int] = {}


class ShareObservation:
    """Finds new acquisition locks."""

    def __init__(self, nodes: Sequence[Node], checker: ShareChecker) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._checker = checker
        self._views: dict[SharePartitionHost, _View] = {}

    def after_step(self, process: Process) -> None:
        """Raises Violation."""
        node = self._nodes.get(process.host)
        if node is None or node.process is not process or node.program is None or process.is_dead:
            return
        for host in node.program.parts.shares.partitions.hosts():
            if host.share is not None:
                self._look_at(host, host.share)

    def _look_at(self, host: SharePartitionHost, share: SharePartition) -> None:
        view = self._views.get(host)
        if view is None:
            view = self._views[host] = _View(share)
            self._checker.has_led(_name(host), host.partition.leader_epoch)
        locks = share.locks
        state = (share.start_offset, share.next_offset, share.available, share.complete, locks.added)
        if state == view.state:
            return
        view.state = state
        now = {
            offset: Delivery(run.member, run.delivery_count)
            for run in share.runs
            if run.state is RecordState.ACQUIRED
            for offset in range(run.first, run.last + 1)
        }
        before, view.locks = view.locks, now
        for offset, delivery in now.items():
            if before.get(offset) != delivery:
                self._checker.delivered(
                    _name(host),
                    host.partition.leader_epoch,
                    offset,
                    delivery,
                    before.get(offset),
                    view.counts.get(offset),
                )
                view.counts[offset] = delivery.number


def _name(host: SharePartitionHost) -> TopicPartition:
    return TopicPartition(host.partition.topic, host.partition.index)
