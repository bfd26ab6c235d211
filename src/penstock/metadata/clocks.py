"""Compares the wall clocks of the brokers, as the active controller learns them from heartbeats.

A broker reports its clock with its standing (`penstock.timekeeping.trust`): whether it has watched the time
without a jump. The clocks that have are the known ones that count. Without any, all of them count, and the
reference is vouched for only if no clock is held: brokers that are wrong together do not correct each other.

The reference is the median of the clocks that count, the controller's own included. It counts only if more
than half of them lie within the limit of it: of two clocks that differ, neither is known to be right.
A broker whose clock differs from the reference by more than the limit in two heartbeats in a row is in `off`,
until the difference is at most three quarters of the limit.

A clock is kept as its difference from the controller's monotonic clock. So a jump of the controller's own
wall clock changes the controller's own entry only.

Why: a broker decides by its wall clock what retention deletes and which timestamps it refuses.
Owned by: the active controller, in memory. A new active controller learns the clocks from new heartbeats.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from penstock.metadata.image import ClusterImage
from penstock.timekeeping.trust import Standing, back_limit_ms

__all__ = ["CLOCKS_DISAGREE", "CLOCK_UNKNOWN", "Clocks", "Reference", "ReportedClock", "agreed_clock"]

#: in place of the reference: the controller does not know enough clocks yet
CLOCK_UNKNOWN: Final = -1
#: in place of the reference: no majority of the clocks agrees
CLOCKS_DISAGREE: Final = -2
#: heartbeats in a row that show a wrong clock before the broker has to hand over its leaderships: one
#: may have been written long before it was sent, for example by a process that was suspended in between
_HEARTBEATS_OFF: Final = 2
#: clocks that are needed where there are several nodes: one alone agrees with itself
_CLOCKS_MIN: Final = 2


class ReportedClock(NamedTuple):
    """The wall clock of a broker as it reports it; -1 if nothing new is known about it."""

    clock_ms: int = -1
    standing: Standing = Standing.UNKNOWN

    @classmethod
    def received(cls, clock_ms: int, standing: int) -> ReportedClock:
        """A clock from a heartbeat, whose standing may be one of a later release."""
        return cls(clock_ms, Standing(standing) if standing in set(Standing) else Standing.UNKNOWN)


class Reference(NamedTuple):
    """The time for the response to a heartbeat: the reference, CLOCK_UNKNOWN or CLOCKS_DISAGREE."""

    clock_ms: int
    #: whether brokers that have watched the time have that clock
    vouched: bool = False


def agreed_clock(clocks: list[float], limit_ms: float) -> float | None:
    """The median, if more than half of the clocks lie within `limit_ms` of it."""
    ordered = sorted(clocks)
    median = ordered[(len(ordered) - 1) // 2]
    agreeing = bisect_right(ordered, median + limit_ms) - bisect_left(ordered, median - limit_ms)
    return median if 2 * agreeing > len(clocks) else None


class _Known:
    __slots__ = ("base_ms", "heard_ms", "standing", "times_off")

    def __init__(self) -> None:
        #: wall clock minus the controller's monotonic clock
        self.base_ms = 0.0
        self.heard_ms = 0.0
        self.standing = Standing.UNKNOWN
        self.times_off = 0


class Clocks:
    """The wall clock of every broker that sends heartbeats; times are milliseconds of a monotonic clock."""

    __slots__ = ("_known", "_node_id", "off")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._known: dict[int, _Known] = {}
        #: brokers whose clocks are wrong, and by how many milliseconds: positive means ahead
        self.off: dict[int, int] = {}

    def heard(
        self,
        image: ClusterImage,
        broker: int,
        reported: ReportedClock,
        *,
        own: ReportedClock,
        now_ms: float,
        session_ms: float,
        limit_ms: int,
    ) -> Reference:
        """Take in a broker's clock from its heartbeat; returns the reference now.

        `own` is the controller's clock at `now_ms`. Clocks that were not heard of for `session_ms` are
        forgotten.
        """
        is_new = reported.clock_ms >= 0
        if is_new:
            self._hear(broker, reported, now_ms)
        self._hear(self._node_id, own, now_ms)
        for node in [n for n, known in self._known.items() if now_ms - known.heard_ms > session_ms]:
            del self._known[node]
            self.off.pop(node, None)
        if not self._enough(image):
            return Reference(CLOCK_UNKNOWN)
        watching = [known for known in self._known.values() if known.standing is Standing.BELIEVED]
        counting = watching or list(self._known.values())
        agreed = agreed_clock([known.base_ms for known in counting], limit_ms)
        if agreed is None:
            self.off.clear()
            return Reference(CLOCKS_DISAGREE)
        if is_new:
            self._judge(broker, self._known[broker], agreed, limit_ms)
        held = any(known.standing is Standing.HELD for known in counting)
        return Reference(round(agreed + now_ms), vouched=not held)

    def _hear(self, node: int, reported: ReportedClock, now_ms: float) -> None:
        known = self._known.setdefault(node, _Known())
        known.base_ms = reported.clock_ms - now_ms
        known.heard_ms = now_ms
        known.standing = reported.standing

    def _enough(self, image: ClusterImage) -> bool:
        brokers = image.brokers
        if len(self._known) < _CLOCKS_MIN:
            return set(brokers) <= set(self._known)
        active = {broker.id for broker in brokers.values() if not broker.fenced}
        return 2 * len(self._known.keys() & active) >= len(active)

    def _judge(self, broker: int, known: _Known, agreed: float, limit_ms: int) -> None:
        skew_ms = round(known.base_ms - agreed)
        if abs(skew_ms) > limit_ms:
            known.times_off += 1
            if known.times_off >= _HEARTBEATS_OFF:
                self.off[broker] = skew_ms
        elif broker not in self.off or abs(skew_ms) <= back_limit_ms(limit_ms):
            known.times_off = 0
            self.off.pop(broker, None)
