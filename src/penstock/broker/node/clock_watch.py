"""Decides whether this broker's wall clock may be used to delete something.

Retention by time, expiry of committed offsets and of producer ids, and compaction (`delete.retention.ms`)
all compare a timestamp with the wall clock. A clock that is days ahead would make them delete everything. So
they call `ClockWatch.now_ms`, which returns None while the clock is not trusted. Meanwhile producers'
timestamps are not rejected either (`on_change`).

In a cluster every heartbeat response carries the reference clock (`penstock.metadata.clocks`). The clock is
trusted while it is within `penstock.clock.skew.max.ms` of the reference. It is not trusted before the first
comparison, while the brokers' clocks disagree, and from a jump against the monotonic clock until the next
comparison.

A broker without other nodes has no reference. It detects a jump of its wall clock while it runs. It trusts
the clock again once the jump is undone, or an hour after the jump. It cannot detect that the clock was wrong
already when the process started.

Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.metadata.clocks import CLOCKS_DISAGREE, back_limit_ms
from penstock.ports import Clock

__all__ = ["ClockReading", "ClockWatch"]

log = get_logger("clock")
#: how long a broker without other nodes waits after a jump before it trusts the new time
_JUMP_HOLD_MS: Final = 3_600_000.0
_NOT_COMPARED: Final = "the clock was not compared with the other brokers' clocks yet"


class ClockReading(NamedTuple):
    """Wall clock and monotonic clock at one moment, in milliseconds."""

    wall_ms: int
    monotonic_ms: float

    @property
    def base_ms(self) -> float:
        """The difference of the two clocks, which is constant as long as the wall clock is not set."""
        return self.wall_ms - self.monotonic_ms


class ClockWatch:
    """Watches the wall clock of one broker.

    `suspended` is the reason why nothing is deleted by time, None while the clock is trusted.
    """

    def __init__(self, clock: Clock, limit_ms: Callable[[], int], alone: Callable[[], bool]) -> None:
        """`alone` returns true if there is no other node to compare the clock with."""
        self._clock = clock
        self._limit_ms = limit_ms
        self._alone = alone
        self.suspended: str | None = _NOT_COMPARED
        #: difference from the reference at the last comparison, positive if this clock is ahead
        self.skew_ms: int | None = None
        #: base of the last trusted reading, None before the first
        self._trusted_ms: float | None = None
        #: base and monotonic time of a jump that a broker without other nodes has detected
        self._jumped_to_ms = 0.0
        self._jumped_at_ms: float | None = None
        #: called with whether the clock is trusted, on every change
        self.on_change: Callable[[bool], None] = _nothing

    def read(self) -> ClockReading:
        return ClockReading(self._clock.now_ms(), self._clock.monotonic() * 1000)

    def now_ms(self) -> int | None:
        """The wall clock for a decision that deletes something; None while it must not be used for that."""
        reading = self.read()
        self._check(reading)
        return reading.wall_ms if self.suspended is None else None

    @property
    def is_compared(self) -> bool:
        """Returns true once the clock was compared with a reference, or is known to need none."""
        return self.suspended is not _NOT_COMPARED

    def check(self) -> None:
        """Detect a jump of the wall clock; to be called every few seconds."""
        self._check(self.read())

    def accept(self) -> None:
        """Trust the clock as it is now, because the operator has confirmed it."""
        self._trust(self.read())

    def compared(self, sent: ClockReading, reference_ms: int) -> None:
        """Process the reference clock of a heartbeat response; `sent` was read when the request was sent."""
        if reference_ms == CLOCKS_DISAGREE:
            self._suspend("the clocks of the brokers disagree, and no majority has the same time")
            return
        now = self.read()
        if self._alone():
            self._check(now)
            return
        if reference_ms < 0:
            return
        # The reference was read at some time in between.
        slack_ms = (now.monotonic_ms - sent.monotonic_ms) / 2
        skew_ms = self.skew_ms = round(sent.wall_ms + slack_ms - reference_ms)
        limit_ms = self._limit_ms()
        if abs(skew_ms) - slack_ms > limit_ms:
            side = "ahead of" if skew_ms > 0 else "behind"
            self._suspend(f"the clock is {abs(skew_ms)} ms {side} the other brokers' clocks")
            return
        suspended = self.suspended not in (None, _NOT_COMPARED)
        if abs(skew_ms) + slack_ms <= (back_limit_ms(limit_ms) if suspended else limit_ms):
            # Trust the reading at the request: the clock may have been set since then.
            self._trust(sent)
            self._check(now)

    def _check(self, reading: ClockReading) -> None:
        if self._trusted_ms is None:
            if self._alone():
                self._trust(reading)
            return
        jump_ms = reading.base_ms - self._trusted_ms
        if self._alone():
            if abs(jump_ms) <= self._limit_ms() or self._hold_is_over(reading):
                # A slewed clock differs very little from the last reading.
                self._trust(reading)
                return
        elif abs(jump_ms) <= self._limit_ms() or self.suspended is not None:
            return
        side = "ahead" if jump_ms > 0 else "back"
        self._suspend(f"the clock was set {side} by {abs(round(jump_ms))} ms while the broker was running")

    def _hold_is_over(self, reading: ClockReading) -> bool:
        jumped_again = abs(reading.base_ms - self._jumped_to_ms) > self._limit_ms()
        self._jumped_to_ms = reading.base_ms
        if self._jumped_at_ms is None or jumped_again:
            self._jumped_at_ms = reading.monotonic_ms
        return reading.monotonic_ms - self._jumped_at_ms >= _JUMP_HOLD_MS

    def _suspend(self, reason: str) -> None:
        if self.suspended in (None, _NOT_COMPARED):
            log.warning("deletion_by_time_suspended", reason=reason, limit_ms=self._limit_ms())
        was_trusted, self.suspended = self.suspended is None, reason
        if was_trusted:
            self.on_change(False)

    def _trust(self, reading: ClockReading) -> None:
        if self.suspended not in (None, _NOT_COMPARED):
            log.info("deletion_by_time_resumed", skew_ms=self.skew_ms)
        was_suspended, self.suspended = self.suspended is not None, None
        self._trusted_ms = reading.base_ms
        self._jumped_at_ms = None
        if was_suspended:
            self.on_change(True)


def _nothing(trusted: bool) -> None:
    """The default callback: does nothing."""
