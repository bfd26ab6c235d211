"""The messages of a delay partition that wait for their delivery time, and the plans of those on their way.

Built by replaying the log of the partition. Pure: the caller passes the time.

Why the table is bounded: a partition can have more waiting messages than memory. The table has those that are
due first. Messages behind its horizon, which is the delivery time and offset of the first one left out, are
found again by another pass over the log, when all before the horizon are moved.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from penstock.model.delays import DELIVER_AT_HEADER
from penstock.records.record import Record
from penstock.shares.delay_log import Done, Outcome, Plan, Target

__all__ = ["ASIDE_MAX", "MESSAGES_MAX", "NO_PRODUCER_ID", "DelaySchedule", "Sequences", "due_ms"]

_SEQUENCE_MAX: Final = 2**31 - 1
NO_PRODUCER_ID: Final = -1
#: the largest timestamp; a producer may ask for any number, and larger ones do not fit into a float
_DUE_MAX_MS: Final = 2**63 - 1
#: the size of the table, whose entries take at most 250 bytes
MESSAGES_MAX: Final = 200_000
#: messages that the target has refused; with so many, no others are planned
ASIDE_MAX: Final = 1000
_SAMPLES: Final = 1000
#: a refused message is tried again after pauses that double, within these limits
_PAUSE_MIN_MS: Final = 60_000
_PAUSE_MAX_MS: Final = 3_600_000

#: a delivery time and an offset: the order in which messages are moved
_Key: TypeAlias = tuple[int, int]


def due_ms(record: Record) -> int:
    """When a message is to be delivered; 0, which is at once, without a valid header."""
    for name, value in record.headers:
        if name == DELIVER_AT_HEADER:
            try:
                return min(max(0, int(value or b"")), _DUE_MAX_MS)
            except ValueError:
                return 0
    return 0


class Sequences:
    """The producer id of a term, and the next sequence for each partition of the target.

    Why a term has a producer id of its own: no plan of an earlier term is needed to continue a sequence, so
    the log does not have to keep any plan that has ended.
    """

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self._next: dict[Target, int] = {}

    def renew(self, producer_id: int) -> None:
        """Begin with another producer id."""
        self.producer_id = producer_id
        self._next.clear()

    def plan(self, target: Target, offsets: tuple[int, ...]) -> Plan:
        return Plan(target, self.producer_id, self._next.get(target, 0), offsets)

    def moved(self, plan: Plan) -> None:
        """The target has the batch of a plan."""
        if plan.producer_id == self.producer_id:
            self._next[plan.target] = (plan.sequence + len(plan.offsets)) & _SEQUENCE_MAX


class _Doubt(NamedTuple):
    """A plan without an end."""

    plan: Plan
    #: its offset in the delay partition
    position: int
    #: delivery times of the messages that were in the table
    dues: dict[int, int]


class DelaySchedule:
    """The state of one delay partition.

    Invariants: an offset is in `_waiting` until a plan names it. Messages below `messages_end` that are
    neither there, nor planned, nor deleted, are behind `_horizon`.
    """

    def __init__(self, messages_max: int = MESSAGES_MAX) -> None:
        self._messages_max = messages_max
        #: offset -> delivery time
        self._waiting: dict[int, int] = {}
        #: entries of planned messages stay until they are due
        self._heap: list[_Key] = []
        #: a heap of the offsets in `_waiting`; others are removed when they come first
        self._offsets: list[int] = []
        #: messages that the target has refused, and when they are tried again, each in a batch of its own
        self._aside: dict[int, int] = {}
        self._aside_heap: list[_Key] = []
        #: offset -> the last pause of a message that was refused alone, until it is moved or deleted
        self._pauses_ms: dict[int, int] = {}
        self._doubtful: dict[Target, _Doubt] = {}
        self._horizon: _Key | None = None
        #: the first offset behind the horizon
        self._left_out: int | None = None
        #: the horizon and the end of the pass before: all messages before both are moved, or set aside
        self._passed: _Key = (-1, -1)
        self._passed_end = 0
        #: messages are known up to here, which is not behind the last stable offset
        self.messages_end = 0
        #: plans are known up to here
        self.progress_end = 0

    def __len__(self) -> int:
        return len(self._waiting)

    # -- replay

    def start_at(self, offset: int) -> None:
        """Read the log from `offset` on."""
        self.messages_end = self.progress_end = offset

    def add(self, offset: int, due: int) -> None:
        """A message that is in the log for good."""
        key = (due, offset)
        if offset < self._passed_end and key < self._passed:
            return
        if self._horizon is not None and key >= self._horizon:
            self._leave_out(offset)
            return
        if offset not in self._waiting:
            self._wait(offset, due)

    def _wait(self, offset: int, due: int) -> None:
        self._waiting[offset] = due
        heappush(self._heap, (due, offset))
        heappush(self._offsets, offset)

    def _leave_out(self, offset: int) -> None:
        self._left_out = offset if self._left_out is None else min(offset, self._left_out)

    def replay(self, progress: Plan | Done, position: int) -> None:
        if isinstance(progress, Plan):
            known = self._doubtful.get(progress.target)
            if known is not None and known.plan == progress:
                # The append was repeated.
                return
            # A plan with another producer id takes the place of the one before.
            dues = {} if known is None else known.dues
            for offset in progress.offsets:
                due = self._waiting.pop(offset, None)
                self._aside.pop(offset, None)
                if due is not None:
                    dues[offset] = due
            self._doubtful[progress.target] = _Doubt(progress, position, dues)
            return
        doubt = self._doubtful.get(progress.target)
        if doubt is not None and progress.ends(doubt.plan):
            del self._doubtful[progress.target]
            if progress.outcome is Outcome.RETURNED:
                for offset, due in doubt.dues.items():
                    self._wait(offset, due)
            else:
                for offset in doubt.plan.offsets:
                    self._pauses_ms.pop(offset, None)

    def deleted(self, before: int) -> None:
        """The log starts at `before`."""
        self.messages_end = max(self.messages_end, before)
        self.progress_end = max(self.progress_end, before)
        if self._left_out is not None:
            self._left_out = max(self._left_out, before)
        while self._offsets and self._offsets[0] < before:
            self.forget(heappop(self._offsets))

    def forget(self, offset: int) -> None:
        """A message is not in the log any more."""
        self._waiting.pop(offset, None)
        self._aside.pop(offset, None)
        self._pauses_ms.pop(offset, None)

    # -- the bound

    @property
    def is_full(self) -> bool:
        return len(self._waiting) - len(self._aside) > self._messages_max

    def prune(self) -> None:
        """Leave out about half of the messages: those that are due last."""
        keys = [(due, offset) for offset, due in self._waiting.items() if offset not in self._aside]
        sample = sorted(keys[:: max(1, len(keys) // _SAMPLES)])
        horizon = self._horizon = sample[len(sample) // 2]
        for key in keys:
            if key >= horizon:
                del self._waiting[key[1]]
                self._leave_out(key[1])
        self._heap = [key for key in keys if key < horizon]
        heapify(self._heap)
        self._offsets = list(self._waiting)
        heapify(self._offsets)

    def needs_pass(self, now_ms: int) -> bool:
        """Returns true if the messages behind the horizon are the next ones. Call it if none is due."""
        horizon = self._horizon
        if horizon is None or self._doubtful or not self._has_room:
            return False
        return len(self._waiting) <= len(self._aside) or horizon[0] <= now_ms

    def begin_pass(self, log_start: int) -> None:
        """Read the log again, for the messages behind the horizon."""
        assert self._horizon is not None
        self._passed, self._passed_end = self._horizon, self.messages_end
        self._horizon = self._left_out = None
        self.start_at(log_start)

    # -- decisions

    def doubtful(self) -> list[Plan]:
        """The plans that may not have been carried out."""
        return [doubt.plan for doubt in self._doubtful.values()]

    def is_aside(self, offset: int) -> bool:
        """Returns true for a message that needs a batch of its own."""
        return offset in self._aside

    def set_aside(self, offset: int, until_ms: int) -> None:
        """The target has refused a waiting message: it is due again at `until_ms`, alone."""
        if offset in self._waiting:
            self._aside[offset] = until_ms
            heappush(self._aside_heap, (until_ms, offset))

    def refuse(self, offset: int, now_ms: int) -> None:
        """The target has refused a message that was alone in its batch: it is tried again after a pause."""
        pause_ms = min(2 * self._pauses_ms.get(offset, _PAUSE_MIN_MS // 2), _PAUSE_MAX_MS)
        self._pauses_ms[offset] = pause_ms
        self.set_aside(offset, now_ms + pause_ms)

    @property
    def set_aside_count(self) -> int:
        """The number of messages that the target has refused, and that are tried again."""
        return len(self._aside)

    def next_due(self) -> int | None:
        while self._aside_heap and not self._is_set_aside(self._aside_heap[0]):
            heappop(self._aside_heap)
        while self._heap and not self._is_waiting(self._heap[0]):
            heappop(self._heap)
        found = [heap[0][0] for heap in (self._aside_heap, self._heap if self._has_room else []) if heap]
        return min(found, default=None)

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """Offsets of messages that are due, the longest first. They wait until a plan names them."""
        found: dict[int, None] = {}
        self._take(self._aside_heap, self._is_set_aside, now_ms, count_max, found)
        if self._has_room:
            self._take(self._heap, self._is_waiting, now_ms, count_max, found)
        return list(found)

    def _take(
        self,
        heap: list[_Key],
        is_valid: Callable[[_Key], bool],
        now_ms: int,
        count_max: int,
        found: dict[int, None],
    ) -> None:
        taken: list[_Key] = []
        while heap and heap[0][0] <= now_ms and len(found) < count_max:
            key = heappop(heap)
            if is_valid(key) and key[1] not in found:
                taken.append(key)
                found[key[1]] = None
        for key in taken:
            heappush(heap, key)

    @property
    def _has_room(self) -> bool:
        """Returns false if the target refuses too much to go on."""
        return len(self._aside) < ASIDE_MAX

    def _is_waiting(self, key: _Key) -> bool:
        due, offset = key
        return self._waiting.get(offset) == due and offset not in self._aside

    def _is_set_aside(self, key: _Key) -> bool:
        return self._aside.get(key[1]) == key[0]

    def first_needed(self) -> int:
        """The first offset that must stay in the log."""
        while self._offsets and self._offsets[0] not in self._waiting:
            heappop(self._offsets)
        needed = [self.messages_end, *self._offsets[:1]]
        if self._left_out is not None:
            needed.append(self._left_out)
        for doubt in self._doubtful.values():
            needed += [doubt.position, *doubt.plan.offsets]
        return min(needed)
