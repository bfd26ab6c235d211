"""How long each broker has been gone, as one node has observed it.

A broker is gone while it is registered and fenced, or while it is not registered and has replicas. Every
voter observes that in the metadata log, also one that is not the active controller, and by its own monotonic
clock. So a change of the active controller does not start the time anew, and no wall clock can end it early.

Invariant: the time is never longer than the time since the broker was fenced, nor than the time since this
node started. After the whole cluster has restarted no broker counts as gone for long. A fenced broker that
registers again stays gone: a process that ends again and again before it is up has not returned.

Owned by: the node. The log is replayed at each start, and all that this node remembers begins there.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.metadata.image import BrokerImage, ClusterImage, Origin

__all__ = ["Absences"]

_State: TypeAlias = tuple[bool, tuple[tuple[int, int, bool, bool], ...]]
#: in place of the offset at which a broker was fenced
_UNREGISTERED = -1


class _Absence(NamedTuple):
    #: the record that fenced the broker: another one means that the broker was back in between
    offset: int
    since_ms: float


class Absences:
    """The brokers that are gone, and since when by a monotonic clock."""

    __slots__ = ("_absences", "_membership", "_quiet_since_ms", "_state")

    def __init__(self) -> None:
        self._absences: dict[int, _Absence] = {}
        #: `ClusterImage.membership` when the image was last observed
        self._membership: object = None
        #: whether a requested reassignment is under way, and the brokers
        self._state: _State = (False, ())
        self._quiet_since_ms = 0.0

    def observed(self, image: ClusterImage, now_ms: float) -> None:
        """Take in the image as it is now; to be called after each batch of records.

        Nearly every batch changes partitions alone, and costs nothing here.
        """
        requested = any(p.origin == Origin.REQUEST for p in image.reassigning.values())
        if image.membership is self._membership and requested == self._state[0]:
            return
        self._membership = image.membership
        gone = {broker.id: broker.fenced_offset for broker in image.brokers.values() if broker.fenced}
        gone |= {node: _UNREGISTERED for node in image.replica_nodes if node not in image.brokers}
        self._absences = {
            node: known
            if (known := self._absences.get(node)) is not None and known.offset == offset
            else _Absence(offset, now_ms)
            for node, offset in gone.items()
        }
        membership = tuple(_state_of(broker) for _, broker in sorted(image.brokers.items()))
        if self._state != (requested, membership):
            self._state = (requested, membership)
            self._quiet_since_ms = now_ms

    def gone(self, now_ms: float) -> dict[int, float]:
        """For how many milliseconds each broker has been gone; brokers that are up are not in it."""
        return {node: now_ms - absence.since_ms for node, absence in sorted(self._absences.items())}

    def quiet_ms(self, now_ms: float) -> float:
        """For how long no broker has come or gone, and no requested reassignment has begun or ended."""
        return now_ms - self._quiet_since_ms


def _state_of(broker: BrokerImage) -> tuple[int, int, bool, bool]:
    return broker.id, broker.epoch, broker.fenced, broker.in_controlled_shutdown
