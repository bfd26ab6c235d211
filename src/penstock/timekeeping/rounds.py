"""Judges rounds of retention: one that would delete far more than usual waits for the grace period.

Retention deletes a little in each round, because a little has become too old since the last one. Records that
were too old already when the broker began to watch its clock are different: a clock or timestamps that are
wrong look the same. If these are more than half of all bytes, and far more than the last rounds have deleted,
they are deleted only in a round after the grace period, or once an operator has confirmed the time.

A segment that becomes too old while the clock is watched does not count, even if it is the last one: an idle
topic ends in this way. Nor does a log whose retention was changed while the broker ran, or that has become
too old by its size.

Owned by: `penstock.broker.app.retention`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from penstock.timekeeping.trust import Cause, Doubt

__all__ = ["RoundGuard", "Survey"]

#: more than this share of all bytes is far too much for one round
_SHARE_MAX: Final = 0.5
#: more than this many times the largest of the last rounds
_TIMES_MAX: Final = 4
#: rounds that are remembered
_ROUNDS: Final = 12


class Survey(NamedTuple):
    """The logs with a retention by time before a round."""

    #: bytes of all of them
    total: int = 0
    #: bytes that were too old already when the broker began to watch its clock
    overdue: int = 0
    #: the largest timestamp; -1 if there is none
    newest_ms: int = -1


class RoundGuard:
    """The rounds of one broker. Times are milliseconds of the monotonic clock."""

    def __init__(self, waited_ms: int = 0) -> None:
        """`waited_ms` is how long a large round has waited before the broker was restarted."""
        self.waited_ms = float(waited_ms)
        self._deleted: deque[int] = deque(maxlen=_ROUNDS)
        self._looked_ms: float | None = None
        #: the round that waits
        self._waiting: Survey | None = None
        self._left_ms = 0.0

    def may_delete(self, survey: Survey, now_ms: float, grace_ms: int, *, confirmed: bool) -> bool:
        """Returns true if a round may delete what is overdue."""
        passed_ms = 0.0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        usual = max(self._deleted, default=0)
        large = survey.overdue > _SHARE_MAX * survey.total and survey.overdue > _TIMES_MAX * usual
        if not large:
            self._waiting, self.waited_ms = None, 0.0
            return True
        if self._waiting is not None:
            self.waited_ms += passed_ms
        self._waiting, self._left_ms = survey, max(0.0, grace_ms - self.waited_ms)
        return confirmed or self.waited_ms >= grace_ms

    def deleted(self, size: int) -> None:
        """Take in the bytes that a round has deleted by time."""
        self._deleted.append(size)

    @property
    def doubt(self) -> Doubt | None:
        """The round that waits; None if none does."""
        found = self._waiting
        if found is None:
            return None
        reason = f"a round of retention would delete {found.overdue} of {found.total} bytes at once"
        return Doubt(Cause.ROUND, reason, left_ms=self._left_ms)
