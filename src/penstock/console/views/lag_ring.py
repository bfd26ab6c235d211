"""Lag of groups over hours: a bounded ring with one point a minute, and its bytes for a file.

The history of a sampler has points every few seconds of the last minutes, for one user. The ring is for all
users of a console: a page shows the points of a group only to users who may describe it. The total of all
groups is kept only where all visitors have the same rights.

Invariant: at most `GROUPS_MAX` groups and `POINTS_MAX` points of each, so that the file is a megabyte or two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from penstock.model.errors import PenstockError

__all__ = [
    "GROUPS_MAX",
    "POINTS_MAX",
    "LagRing",
    "RingState",
    "UnreadableRing",
    "decoded",
    "encoded",
    "joined",
]

#: six hours
POINTS_MAX: Final = 360
GROUPS_MAX: Final = 200
_APART_S: Final = 60.0
_VERSION: Final = 1
_BYTES_MAX: Final = 16 << 20

Point: TypeAlias = tuple[float, float]
_Points: TypeAlias = Annotated[list[Point], msgspec.Meta(max_length=POINTS_MAX)]


class UnreadableRing(PenstockError):
    """The bytes are not a ring."""


class RingState(msgspec.Struct, frozen=True):
    """A ring at one time: what a file has."""

    version: int
    cluster_id: str
    total: _Points
    groups: Annotated[dict[str, _Points], msgspec.Meta(max_length=GROUPS_MAX)]


class LagRing:
    """The points of one cluster. Owned by the thread of the event loop."""

    def __init__(self) -> None:
        self._cluster_id = ""
        self._total: deque[Point] = deque(maxlen=POINTS_MAX)
        self._groups: dict[str, deque[Point]] = {}

    def load(self, state: RingState) -> None:
        self._cluster_id = state.cluster_id
        self._total = deque(state.total, POINTS_MAX)
        self._groups = {name: deque(points, POINTS_MAX) for name, points in state.groups.items()}

    def state(self) -> RingState:
        """A copy, which another thread may encode."""
        groups = {name: list(points) for name, points in self._groups.items()}
        return RingState(_VERSION, self._cluster_id, list(self._total), groups)

    def add(self, cluster_id: str, time_s: float, lags: Mapping[str, int], total: int | None) -> bool:
        """Add the lags of a sample where a minute has passed; returns whether the ring has changed.

        Points of another cluster are forgotten. A group takes the place of the one that is not seen longest.
        """
        if cluster_id != self._cluster_id:
            self._cluster_id, self._groups = cluster_id, {}
            self._total.clear()
        changed = total is not None and _extended(self._total, time_s, total)
        for name, lag in lags.items():
            points = self._groups.get(name)
            if points is None:
                if not lag or not self._has_room(time_s):
                    continue
                points = self._groups[name] = deque(maxlen=POINTS_MAX)
            changed |= _extended(points, time_s, lag)
        return changed

    def total(self) -> list[Point]:
        return list(self._total)

    def points(self, group: str) -> list[Point]:
        return list(self._groups.get(group, ()))

    def _has_room(self, now: float) -> bool:
        """Whether a group can be added, after the one that ended longest ago was removed."""
        if len(self._groups) < GROUPS_MAX:
            return True
        oldest = min(self._groups, key=lambda name: self._groups[name][-1][0])
        if self._groups[oldest][-1][0] > now - 2 * _APART_S:
            return False
        del self._groups[oldest]
        return True


def _extended(points: deque[Point], time_s: float, value: int) -> bool:
    if points and time_s < points[-1][0]:
        # The clock was set back: points of the future would stop the ring until then.
        while points and points[-1][0] > time_s:
            points.pop()
    if points and time_s - points[-1][0] < _APART_S:
        return False
    points.append((round(time_s, 1), float(value)))
    return True


def joined(old: Sequence[Point], recent: Sequence[Point]) -> list[Point]:
    """The points of the ring from before the recent ones, and these."""
    if not recent:
        return list(old)
    return [*(point for point in old if point[0] < recent[0][0]), *recent]


def encoded(state: RingState) -> bytes:
    return msgspec.msgpack.encode(state)


def decoded(data: bytes) -> RingState:
    """The state in a file; UnreadableRing if it is damaged, too large, or of another version."""
    if len(data) > _BYTES_MAX:
        raise UnreadableRing(f"it has more than {_BYTES_MAX} bytes")
    try:
        state = msgspec.msgpack.decode(data, type=RingState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRing(str(error)) from error
    if state.version != _VERSION:
        raise UnreadableRing(f"its version is {state.version}, not {_VERSION}")
    for points in (state.total, *state.groups.values()):
        if not all(math.isfinite(number) for point in points for number in point):
            raise UnreadableRing("a point is no number")
    if not all(state.groups.values()):
        raise UnreadableRing("a group has no points")
    return state
