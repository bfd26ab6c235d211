"""The records in flight of a share partition, as runs of consecutive offsets with the same state.

Most requests acquire and acknowledge whole runs. A request for a part of a run splits it. Runs are not
joined again: the limit of records in flight bounds their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from penstock.shares.states import RecordState, StateBatch

__all__ = ["NO_MEMBER", "InFlightRuns", "Run"]

NO_MEMBER: Final = ""


class Run:
    """Consecutive offsets with the same state, delivery count and owner."""

    __slots__ = (
        "batch_size",
        "deadline_ms",
        "delivery_count",
        "first",
        "last",
        "member",
        "rests",
        "state",
        "target",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        *,
        member: str = NO_MEMBER,
        deadline_ms: int = 0,
        batch_size: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        #: the owner of the acquisition lock
        self.member = member
        #: when the acquisition lock expires, or the retry backoff ends
        self.deadline_ms = deadline_ms
        #: the size of the run that was acquired first, from which this one may be a part
        self.batch_size = batch_size or last - first + 1
        #: the state that is being persisted; None if no transition is under way
        self.target: RecordState | None = None
        #: true during the retry backoff of a released run, which is not delivered
        self.rests = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        target = "" if self.target is None else f"->{self.target.name}"
        owner = f" {self.member}" if self.member else ""
        return f"<{self.first}-{self.last} {self.state.name}{target} x{self.delivery_count}{owner}>"

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.target is None and not self.rests

    def batch(self) -> StateBatch:
        """The run as it is persisted, in the state that it will have."""
        state = self.state if self.target is None else self.target
        return StateBatch(self.first, self.last, state, self.delivery_count)


class InFlightRuns:
    """Runs in the order of their offsets.

    Invariant: the runs are disjoint and without gaps.
    """

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        #: of each run, for the search
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def append(self, run: Run) -> None:
        assert not self._runs or self._runs[-1].last + 1 == run.first, (self._runs[-1], run)
        self._runs.append(run)
        self._firsts.append(run.first)

    def from_offset(self, offset: int) -> Iterator[Run]:
        """The run that contains `offset`, and all runs after it."""
        for i in range(max(0, bisect_right(self._firsts, offset) - 1), len(self._runs)):
            if self._runs[i].last >= offset:
                yield self._runs[i]

    def overlapping(self, first: int, last: int) -> list[Run]:
        """The runs with an offset between `first` and `last`."""
        low = max(0, bisect_right(self._firsts, first) - 1)
        high = bisect_right(self._firsts, last)
        found = self._runs[low:high]
        return found[1:] if found and found[0].last < first else found

    def split_at(self, offset: int) -> None:
        """Have a run begin at `offset`, if `offset` is in flight."""
        i = bisect_right(self._firsts, offset) - 1
        if i < 0 or self._firsts[i] == offset or self._runs[i].last < offset:
            return
        run = self._runs[i]
        assert run.target is None, run
        rest = Run(
            offset,
            run.last,
            run.state,
            run.delivery_count,
            member=run.member,
            deadline_ms=run.deadline_ms,
            batch_size=run.batch_size,
        )
        rest.rests = run.rests
        run.last = offset - 1
        self._runs.insert(i + 1, rest)
        self._firsts.insert(i + 1, offset)

    def exactly(self, first: int, last: int) -> list[Run]:
        """The runs from `first` to `last`, split off the rest of the runs that they are a part of."""
        self.split_at(first)
        self.split_at(last + 1)
        return self.overlapping(first, last)

    def drop_first(self, count: int) -> None:
        del self._runs[:count]
        del self._firsts[:count]

    def cut_first(self, offset: int) -> None:
        """Remove the offsets below `offset` from the first run, which contains it."""
        assert self._runs[0].first < offset <= self._runs[0].last, (self._runs[0], offset)
        self._runs[0].first = self._firsts[0] = offset
