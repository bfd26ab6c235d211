"""The messages of a delay partition that wait for their delivery time, and the plans of those on their way.

Built by replaying the log of the partition. Pure: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from penstock.model.delays import DELIVER_AT_HEADER
from penstock.records.record import Record
from penstock.shares.delay_log import Done, Plan, Target

__all__ = ["DelaySchedule", "due_ms"]

_SEQUENCE_MAX: Final = 2**31 - 1
NO_PRODUCER_ID: Final = -1


def due_ms(record: Record) -> int:
    """When a message is to be delivered; 0, which is at once, without a valid header."""
    for name, value in record.headers:
        if name == DELIVER_AT_HEADER:
            try:
                return max(0, int(value or b""))
            except ValueError:
                return 0
    return 0


class _LastPlan(NamedTuple):
    plan: Plan
    #: its offset in the delay partition
    position: int
    is_done: bool


class DelaySchedule:
    """The state of one delay partition.

    Invariant: an offset is in `_waiting` until a plan names it.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}
        #: (due, offset); entries of planned messages stay until they are due
        self._heap: list[tuple[int, int]] = []
        self._last: dict[Target, _LastPlan] = {}
        self.producer_id = NO_PRODUCER_ID
        #: behind the last record that was replayed
        self.end = 0

    def __len__(self) -> int:
        return len(self._waiting)

    # -- replay

    def add(self, offset: int, due: int) -> None:
        self._waiting[offset] = due
        heappush(self._heap, (due, offset))

    def replay(self, progress: Plan | Done, position: int) -> None:
        if isinstance(progress, Plan):
            for offset in progress.offsets:
                self._waiting.pop(offset, None)
            self._last[progress.target] = _LastPlan(progress, position, False)
            self.producer_id = progress.producer_id
        else:
            last = self._last.get(progress.target)
            if last is not None and last.plan.sequence == progress.sequence:
                self._last[progress.target] = last._replace(is_done=True)

    # -- decisions

    def doubtful(self) -> list[Plan]:
        """The plans that may not have been carried out."""
        return [last.plan for last in self._last.values() if not last.is_done]

    def next_due(self) -> int | None:
        while self._heap and self._heap[0][1] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """Offsets of messages that are due, the longest first. They wait until a plan names them."""
        found: list[int] = []
        taken: list[tuple[int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < count_max:
            entry = heappop(self._heap)
            if entry[1] in self._waiting:
                taken.append(entry)
                found.append(entry[1])
        for entry in taken:
            heappush(self._heap, entry)
        return found

    def plan(self, target: Target, offsets: Iterable[int]) -> Plan:
        """The next plan for a partition of the target."""
        last = self._last.get(target)
        sequence = 0
        if last is not None:
            sequence = (last.plan.sequence + len(last.plan.offsets)) & _SEQUENCE_MAX
        return Plan(target, self.producer_id, sequence, tuple(offsets))

    def first_needed(self) -> int:
        """The first offset that must stay in the log."""
        needed = [self.end, min(self._waiting, default=self.end)]
        for last in self._last.values():
            needed += [last.position, *(() if last.is_done else last.plan.offsets)]
        return min(needed)
