"""A broker's clock that a test sets, stops and restarts."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.timekeeping.trust import ClockTrust, Reading, SavedClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
LIMIT_MS = 5 * MINUTE_MS
GRACE_MS = 6 * HOUR_MS
START_MS = 1_700_000_000_000


@dataclass
class FixedLimits:
    limit: int = LIMIT_MS
    grace: int = GRACE_MS
    confirmed: int = -1

    def limit_ms(self) -> int:
        return self.limit

    def grace_ms(self) -> int:
        return self.grace

    def confirmed_ms(self) -> int:
        return self.confirmed


class Watched:
    """The trust in one clock, over restarts; new unless a saved time is given."""

    def __init__(self, *, alone: bool = True) -> None:
        self.limits = FixedLimits()
        self.is_alone = alone
        self.passed_ms = 0
        self.ahead_ms = 0
        #: when the process started: its monotonic clock begins anew with every boot
        self._booted_ms = 0
        self.trust = ClockTrust(self.limits, None, self.read(), is_new=True)

    @property
    def true_ms(self) -> int:
        return START_MS + self.passed_ms

    def read(self) -> Reading:
        return Reading(self.true_ms + self.ahead_ms, 77_000.0 + self.passed_ms - self._booted_ms)

    def look(self) -> bool:
        """Returns true if the clock is believed now."""
        self.trust.observe(self.read())
        if self.is_alone:
            self.trust.alone()
        return self.trust.doubt is None

    def run(self, for_ms: int, every_ms: int = MINUTE_MS) -> bool:
        """Let time pass while the broker runs; returns true if the clock is believed at the end."""
        end_ms = self.passed_ms + for_ms
        while self.passed_ms < end_ms:
            self.passed_ms = min(end_ms, self.passed_ms + every_ms)
            self.look()
        return self.look()

    def restart(self, off_ms: int = 0, saved: SavedClock | None = None, *, lost: bool = False) -> bool:
        """Stop for a while and start; returns true if the clock is believed then."""
        kept = self.trust.saved() if saved is None else saved
        self.passed_ms += off_ms
        self._booted_ms = self.passed_ms
        self.trust = ClockTrust(self.limits, None if lost else kept, self.read(), is_new=False)
        return self.look()

    def compare(self, reference_ms: int | None = None, *, vouched: bool | None = True) -> bool:
        """A heartbeat, whose response has the right time unless it is given."""
        now = self.read()
        self.trust.observe(now)
        self.trust.compared(now, now, self.true_ms if reference_ms is None else reference_ms, vouched)
        self.trust.observe(now)
        return self.trust.doubt is None
