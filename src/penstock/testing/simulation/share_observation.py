"""Reads share partitions of brokers after each step, and reports deliveries to the checker.

Every record in flight has to be acquired, finished or available soon: a lock expires, and a change that is
being persisted ends, whatever happens to the share coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.model.ids import TopicPartition
from penstock.shares.partition import SharePartition
from penstock.shares.states import RecordState
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.share_checker import Delivery, ShareChecker

__all__ = ["ShareObservation"]

_State: TypeAlias = tuple[int, ...]
#: how often records are looked at that wait for the end of a lock or of a write
_LOOK_MS: Final = 500
#: in how many looks in a row a record may have a lock that has expired, and a change that is being persisted
_OVERDUE_MAX: Final = 5
_WRITES_MAX: Final = 60


class _View:
    """A share partition at the last look."""

    __slots__ = ("counts", "locks", "looked_ms", "overdue", "share", "state", "writing")

    def __init__(self, share: SharePartition) -> None:
        self.share = share
        self.state: _State = ()
        self.locks: dict[int, Delivery] = {}
        #: the delivery count of each record that this leader has delivered
        self.counts: dict[int, int] = {}
        self.looked_ms = 0
        #: by first offset and delivery count, the looks at a record with an expired lock, or with a change
        self.overdue: Counter[tuple[int, int]] = Counter()
        self.writing: Counter[tuple[int, int]] = Counter()


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
        shares = node.program.stages.coordinators.shares.partitions
        for host in shares.hosts():
            if host.share is not None:
                self._look_at(host, host.share, shares.env.now_ms())

    def _look_at(self, host: SharePartitionHost, share: SharePartition, now_ms: int) -> None:
        view = self._views.get(host)
        if view is None:
            view = self._views[host] = _View(share)
            self._checker.has_led(_name(host), host.partition.leader_epoch)
        if now_ms - view.looked_ms >= _LOOK_MS:
            view.looked_ms = now_ms
            _look_for_stuck(host, share, view, now_ms)
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


def _look_for_stuck(host: SharePartitionHost, share: SharePartition, view: _View, now_ms: int) -> None:
    """Find records that are neither finished nor delivered again."""
    available = sum(len(run) for run in share.runs if run.is_available)
    if available != share.available:
        raise Violation("wrong count", f"{_name(host)}: {share.available} of {available} are available")
    held = [run for run in share.runs if run.state is RecordState.ACQUIRED and run.target is None]
    overdue = {(run.first, run.delivery_count) for run in held if run.deadline_ms <= now_ms}
    writing = {(run.first, run.delivery_count) for run in share.runs if run.target is not None}
    view.overdue = Counter({key: view.overdue[key] + 1 for key in overdue})
    view.writing = Counter({key: view.writing[key] + 1 for key in writing})
    for looks, limit in ((view.overdue, _OVERDUE_MAX), (view.writing, _WRITES_MAX)):
        stuck = [key for key, count in looks.items() if count > limit]
        if stuck and host.is_current:
            raise Violation("record stuck", f"{_name(host)} in epoch {host.leader_epoch}: {stuck}")


def _name(host: SharePartitionHost) -> TopicPartition:
    return TopicPartition(host.partition.topic, host.partition.index)
