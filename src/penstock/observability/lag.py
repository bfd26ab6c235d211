"""The lag of a group in records, and in seconds from a history of end offsets.

Records: the partitions of a group are those with a committed offset, the other partitions of the same topics,
and those that its members are assigned. A partition without a committed offset counts from its first record:
the group has read none of them. Where an offset is not known, the lag is a lower bound. The console, the
commands and the metrics share this definition.

Seconds: the broker that coordinates a group does not read the records that the group has yet to consume, and
their leader may be another broker. It samples the high watermark of each partition instead. The oldest record
that a group has not committed became readable when the high watermark passed it: between two samples, which
are interpolated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

__all__ = ["SAMPLES_MAX", "Lag", "OffsetHistory", "group_lag", "partition_lag"]

#: (topic, partition)
Key: TypeAlias = tuple[str, int]

#: samples of one partition. When they are full, every second one is dropped: the history reaches back twice
#: as far, more coarsely.
SAMPLES_MAX: Final = 32


class Lag(NamedTuple):
    """Records that a group has yet to read: at least `records`, and exactly so many if `is_exact`."""

    records: int
    is_exact: bool = True
    #: partitions without a committed offset, which count from their first record
    uncommitted: int = 0

    def plus(self, other: Lag) -> Lag:
        is_exact = self.is_exact and other.is_exact
        return Lag(self.records + other.records, is_exact, self.uncommitted + other.uncommitted)


def partition_lag(committed: int | None, start: int | None, end: int | None) -> int | None:
    """The records that a group has yet to read in a partition; None if an offset is not known.

    Without a committed offset, the partition counts from its first record at `start`.
    """
    first = start if committed is None else committed
    return None if first is None or end is None else max(0, end - first)


def group_lag(
    commits: Mapping[Key, int], keys: Iterable[Key], starts: Mapping[Key, int], ends: Mapping[Key, int]
) -> Lag | None:
    """The lag in the partitions `keys`; None if the lag of no partition is known."""
    records = uncommitted = known = missing = 0
    for key in keys:
        committed = commits.get(key)
        behind = partition_lag(committed, starts.get(key), ends.get(key))
        uncommitted += committed is None
        if behind is None:
            missing += 1
        else:
            known += 1
            records += behind
    return Lag(records, not missing, uncommitted) if known else None


class OffsetHistory:
    """High watermarks of one partition by time."""

    __slots__ = ("_offsets", "_spacing_s", "_times_s")

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._offsets: list[int] = []
        self._spacing_s = 0.0

    @property
    def end(self) -> int | None:
        """The last high watermark; None if there is none yet."""
        return self._offsets[-1] if self._offsets else None

    def add(self, now_s: float, offset: int) -> None:
        """The high watermark at a time. It falls only if the topic was created anew: history starts over."""
        times, offsets = self._times_s, self._offsets
        if offsets and offset < offsets[-1]:
            times.clear()
            offsets.clear()
            self._spacing_s = 0.0
        if len(offsets) >= 2 and (offsets[-2] == offset or times[-1] - times[-2] < self._spacing_s):
            # Nothing was written since, or the last one is too close to keep: it moves on.
            times[-1], offsets[-1] = now_s, offset
            return
        times.append(now_s)
        offsets.append(offset)
        if len(offsets) > SAMPLES_MAX:
            self._spacing_s = max(2 * self._spacing_s, 2 * (now_s - times[0]) / SAMPLES_MAX)
            del times[1:-1:2], offsets[1:-1:2]

    def lag_seconds(self, committed: int, now_s: float) -> float:
        """For how long the record at `committed` has been readable; 0 if it is not.

        A record from before the first sample has been readable at least since then.
        """
        times, offsets = self._times_s, self._offsets
        if not offsets or committed >= offsets[-1]:
            return 0.0
        if committed < offsets[0]:
            return max(0.0, now_s - times[0])
        for later in range(len(offsets) - 1, 0, -1):
            if offsets[later - 1] <= committed:
                earlier = later - 1
                share = (committed - offsets[earlier]) / (offsets[later] - offsets[earlier])
                readable = times[earlier] + share * (times[later] - times[earlier])
                return max(0.0, now_s - readable)
        raise AssertionError("offsets never fall")
