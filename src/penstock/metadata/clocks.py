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

The clocks are kept in order. So a heartbeat costs the same however many brokers there are, but for two moves
of elements inside a list.

Why: a broker decides by its wall clock what retention deletes and which timestamps it refuses.
Owned by: the active controller, in memory. A new active controller learns the clocks from new heartbeats.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.metadata.image import BrokerImage, ClusterImage
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


def agreed_clock(ordered: Sequence[float], limit_ms: float) -> float | None:
    """The median of clocks in ascending order, if more than half of them lie within `limit_ms` of it."""
    median = ordered[(len(ordered) - 1) // 2]
    agreeing = bisect_right(ordered, median + limit_ms) - bisect_left(ordered, median - limit_ms)
    return median if 2 * agreeing > len(ordered) else None


class _Known:
    __slots__ = ("base_ms", "heard_ms", "standing", "times_off")

    def __init__(self) -> None:
        #: wall clock minus the controller's monotonic clock
        self.base_ms = 0.0
        self.heard_ms = 0.0
        self.standing = Standing.UNKNOWN
        self.times_off = 0


class _Ordered:
    """The clocks of nodes by their standings, each in ascending order."""

    __slots__ = ("_by_standing", "everyone")

    def __init__(self) -> None:
        self.everyone: list[float] = []
        self._by_standing: dict[Standing, list[float]] = {standing: [] for standing in Standing}

    def add(self, known: _Known) -> None:
        insort(self.everyone, known.base_ms)
        insort(self._by_standing[known.standing], known.base_ms)

    def remove(self, known: _Known) -> None:
        for ordered in (self.everyone, self._by_standing[known.standing]):
            del ordered[bisect_left(ordered, known.base_ms)]

    @property
    def counting(self) -> list[float]:
        """The clocks of brokers that have watched the time; all clocks if none has."""
        return self._by_standing[Standing.BELIEVED] or self.everyone

    @property
    def is_vouched(self) -> bool:
        """Whether no clock that counts is held."""
        return bool(self._by_standing[Standing.BELIEVED]) or not self._by_standing[Standing.HELD]


class Clocks:
    """The wall clock of every broker that sends heartbeats; times are milliseconds of a monotonic clock."""

    __slots__ = ("_is_enough", "_known", "_membership", "_node_id", "_ordered", "off")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        #: the one that was not heard of for the longest first
        self._known: dict[int, _Known] = {}
        self._ordered = _Ordered()
        #: whether enough brokers are known, while neither they nor the `membership` of the image change
        self._is_enough = False
        self._membership: object = None
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
        self._forget(now_ms - session_ms)
        if not self._enough(image):
            return Reference(CLOCK_UNKNOWN)
        agreed = agreed_clock(self._ordered.counting, limit_ms)
        if agreed is None:
            self.off.clear()
            return Reference(CLOCKS_DISAGREE)
        if is_new:
            self._judge(broker, self._known[broker], agreed, limit_ms)
        return Reference(round(agreed + now_ms), vouched=self._ordered.is_vouched)

    def _hear(self, node: int, reported: ReportedClock, now_ms: float) -> None:
        known = self._known.pop(node, None)
        if known is None:
            known = _Known()
            self._membership = None
        else:
            self._ordered.remove(known)
        known.base_ms = reported.clock_ms - now_ms
        known.heard_ms = now_ms
        known.standing = reported.standing
        self._known[node] = known
        self._ordered.add(known)

    def _forget(self, before_ms: float) -> None:
        """Forget the clocks that were not heard of since."""
        while True:
            node, known = next(iter(self._known.items()))
            if known.heard_ms >= before_ms:
                return
            del self._known[node]
            self._ordered.remove(known)
            self._membership = None
            self.off.pop(node, None)

    def _enough(self, image: ClusterImage) -> bool:
        if self._membership is not image.membership:
            self._membership = image.membership
            self._is_enough = self._are_enough(image.brokers)
        return self._is_enough

    def _are_enough(self, brokers: Mapping[int, BrokerImage]) -> bool:
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
