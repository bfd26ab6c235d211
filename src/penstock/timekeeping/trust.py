"""Judges the wall clock of one broker: readings, comparisons and history in, a verdict out.

The clock has evidence of four kinds. Each of them can suspend deletion by time:

- The monotonic clock. The difference of the two clocks is constant as long as the wall clock is not set.
- The history: the time that the broker saved before it stopped, and the timestamp of its newest record.
- The other brokers (`compared`): the reference clock in the response to a heartbeat.
- An operator, who has confirmed a time (`confirm`).

A difference of more than the limit from the monotonic clock or from the history starts a *hold*. It ends

- at once, if the clock is set back to the time that the evidence expects,
- when clocks without a hold agree with it (`vouched`): those brokers have watched the time in between,
- when an operator confirms the time,
- after the grace period, measured by the monotonic clock while the broker runs. Another jump starts it again.

So all brokers that are wrong together are held, although they agree. And no hold lasts for ever: a machine
that was off for months has the right time.

A stop of an hour looks like a jump of an hour. Its hold lasts as long as the stop, at most the grace period.

Invariant: `doubt` is None only if no evidence contradicts the clock.
Why: a clock that is days ahead makes retention and expiry delete everything.
Owned by: `penstock.broker.node.clock_watch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from math import inf
from typing import Final, NamedTuple, Protocol

__all__ = ["NOT_COMPARED", "Cause", "ClockTrust", "Doubt", "Limits", "Reading", "SavedClock", "Standing"]

#: how fast a clock may be slewed: chrony's limit is a twelfth
_SLEW_MAX: Final = 0.1
#: in place of a saved time: there was none that could be believed
_UNKNOWN_MS: Final = -1
NOT_COMPARED: Final = "the clock was not compared with the other brokers' clocks yet"
_UNRECORDED: Final = "there is no record of the time before the stop"
_NOT_VOUCHED: Final = "no broker has watched the time long enough to vouch for it"


class Reading(NamedTuple):
    """Wall clock and monotonic clock at one moment, in milliseconds."""

    wall_ms: int
    monotonic_ms: float

    @property
    def base_ms(self) -> float:
        """The difference of the two clocks, which is constant as long as the wall clock is not set."""
        return self.wall_ms - self.monotonic_ms


class SavedClock(NamedTuple):
    """The clock as a broker saved it while it ran, and before it stopped."""

    #: the time by the evidence; -1 if there was none
    believed_ms: int
    #: the time by the wall clock
    wall_ms: int
    #: how much of the grace period of a hold is over
    held_ms: int = 0
    #: since when the wall clock has run without a jump that had to be accepted
    watched_since_ms: int = 0
    #: how long a large round of retention has waited (`rounds`)
    round_waited_ms: int = 0


class Limits(Protocol):
    """The configs of the clock, which may change at any time."""

    def limit_ms(self) -> int:
        """The largest difference that is no jump."""
        ...

    def grace_ms(self) -> int:
        """How long a jump is not accepted."""
        ...

    def confirmed_ms(self) -> int:
        """The time that an operator has confirmed last; -1 if there is none."""
        ...


class Standing(IntEnum):
    """What a broker reports about its clock."""

    #: a broker of an earlier release
    UNKNOWN = 0
    #: no evidence contradicts the clock, and it is evidence for other clocks
    BELIEVED = 1
    HELD = 2
    #: a new broker, which has no history
    NEW = 3


class Cause(StrEnum):
    """Why deletion by time is suspended."""

    NOT_COMPARED = "not_compared"
    DISAGREEMENT = "disagreement"
    SKEW = "skew"
    JUMP = "jump"
    STOP = "stop"
    ROUND = "round"


class Doubt(NamedTuple):
    cause: Cause
    reason: str
    #: false if an operator need not know: it passes by itself, and is no sign of a wrong clock
    is_alarming: bool = True
    #: how long it lasts if nothing else changes; -1 if that is unknown
    left_ms: float = -1.0

    def __str__(self) -> str:
        """The reason for an operator, with the time that is left."""
        left = f"; this time is accepted in {round(self.left_ms / 1000)} s" if self.left_ms >= 0 else ""
        return self.reason + left


@dataclass(slots=True)
class _Hold:
    cause: Cause
    #: base of the clock that is not accepted yet
    base_ms: float
    #: how far it is from the time that the evidence expects
    jump_ms: float
    #: wall clock when it began
    since_ms: int
    reason: str
    served_ms: float = 0.0
    #: how long the broker was stopped: the hold need not last longer
    stopped_ms: float = inf
    #: how much of the grace period of the last hold was over before the stop; None if there was no hold
    carried_ms: float | None = None

    def left_ms(self, grace_ms: float) -> float:
        length_ms = min(grace_ms, self.stopped_ms)
        if self.carried_ms is not None:
            length_ms = max(length_ms, grace_ms - self.carried_ms)
        return max(0.0, length_ms - self.served_ms)


class ClockTrust:
    """The state machine of one broker's clock. Times are milliseconds."""

    def __init__(self, limits: Limits, saved: SavedClock | None, first: Reading, *, is_new: bool) -> None:
        """`saved` is None if there is none that can be believed; `is_new` for a broker without any data."""
        self._limits = limits
        self._last = first
        #: base that the evidence expects, None while there is no evidence
        self._expected: float | None = None
        self._hold: _Hold | None = None
        #: true for a new broker until another clock agrees with it, or the grace period is over
        self._is_new = is_new
        self._first_ms = first.monotonic_ms
        self._others: Doubt | None = Doubt(Cause.NOT_COMPARED, NOT_COMPARED, is_alarming=False)
        #: since when the wall clock has run without a jump that had to be accepted; 0 if it is confirmed
        self.watched_since_ms = first.wall_ms
        self._start(saved, first)

    def _start(self, saved: SavedClock | None, first: Reading) -> None:
        if self._is_new:
            self._expected = first.base_ms
            return
        limit_ms = self._limits.limit_ms()
        if saved is None or saved.believed_ms < 0:
            hold = _Hold(Cause.STOP, first.base_ms, 0.0, first.wall_ms, _UNRECORDED)
        else:
            self._expected = saved.believed_ms - first.monotonic_ms
            jump_ms = first.wall_ms - saved.believed_ms
            if abs(jump_ms) <= limit_ms:
                self._expected = first.base_ms
                self.watched_since_ms = saved.watched_since_ms
                return
            hold = _Hold(Cause.STOP, first.base_ms, jump_ms, first.wall_ms, _stopped(jump_ms))
        self._hold = hold
        if saved is None:
            return
        # The wall clock may have been in doubt before the stop. The time of the stop is in doubt, too.
        stopped_ms = first.wall_ms - saved.wall_ms
        if stopped_ms >= -limit_ms:
            hold.stopped_ms = stopped_ms
        if abs(saved.wall_ms - saved.believed_ms) > limit_ms:
            hold.carried_ms = saved.held_ms

    # -- observations

    def observe(self, reading: Reading) -> None:
        """Compare a reading with the monotonic clock, and with what was confirmed."""
        passed_ms = max(0.0, reading.monotonic_ms - self._last.monotonic_ms)
        self._last = reading
        if self._is_new and reading.monotonic_ms - self._first_ms >= self._limits.grace_ms():
            self._is_new = False
        self._compare_monotonic(reading, passed_ms)
        if abs(reading.wall_ms - self._limits.confirmed_ms()) <= self._limits.limit_ms():
            self.confirm(reading)

    def _compare_monotonic(self, reading: Reading, passed_ms: float) -> None:
        limit_ms, slew_ms, hold = self._limits.limit_ms(), passed_ms * _SLEW_MAX, self._hold
        if self._expected is not None:
            jump_ms = reading.base_ms - self._expected
            if abs(jump_ms) <= limit_ms:
                self._hold = None
                self._expected += max(-slew_ms, min(slew_ms, jump_ms))
                return
            if hold is None:
                hold = self._hold = self._jumped(reading, jump_ms)
        assert hold is not None, "without a hold there is a time that is expected"
        moved_ms = reading.base_ms - hold.base_ms
        if abs(moved_ms) > limit_ms:
            jump_ms = moved_ms if self._expected is None else reading.base_ms - self._expected
            self._hold = self._jumped(reading, jump_ms)
            return
        hold.base_ms += max(-slew_ms, min(slew_ms, moved_ms))
        hold.served_ms += passed_ms
        if self.grace_left_ms <= 0:
            self._believe(reading, hold.since_ms)

    def compared(self, sent: Reading, now: Reading, reference_ms: int, vouched: bool | None) -> int:
        """Compare with the reference clock in the response to a heartbeat; returns the difference.

        `sent` was read when the request was sent, `now` when the response arrived. `vouched` says whether
        brokers without a hold have that clock, None from a controller of an earlier release.
        """
        limit_ms = self._limits.limit_ms()
        slack_ms = (now.monotonic_ms - sent.monotonic_ms) / 2
        skew_ms = round(sent.wall_ms + slack_ms - reference_ms)
        if abs(skew_ms) - slack_ms > limit_ms:
            side = "ahead of" if skew_ms > 0 else "behind"
            reason = f"the clock is {abs(skew_ms)} ms {side} the other brokers' clocks"
            self._others = Doubt(Cause.SKEW, reason)
            return skew_ms
        off = self._others is not None and self._others.cause in (Cause.SKEW, Cause.DISAGREEMENT)
        if abs(skew_ms) + slack_ms > (back_limit_ms(limit_ms) if off else limit_ms):
            return skew_ms
        if self._is_new and vouched is False:
            self._others = Doubt(Cause.NOT_COMPARED, _NOT_VOUCHED, is_alarming=False)
            return skew_ms
        self._others, self._is_new = None, False
        if vouched and self._hold is not None and abs(sent.base_ms - self._hold.base_ms) <= limit_ms:
            # The reading at the request: the clock may have been set since then.
            self._believe(sent, self._hold.since_ms)
        return skew_ms

    def disagreed(self) -> None:
        """Take in that the clocks of the brokers differ, and that no majority has the same time."""
        reason = "the clocks of the brokers disagree, and no majority has the same time"
        self._others = Doubt(Cause.DISAGREEMENT, reason)

    def alone(self) -> None:
        """Take in that there is no other clock to compare with."""
        self._others = None

    def newest_record(self, timestamp_ms: int) -> None:
        """Take in the largest timestamp of all records, before anything is deleted.

        It counts only without a saved time, and never shortens a hold: producers choose timestamps. A clock
        that is far from it gets an alert.
        """
        hold = self._hold
        if hold is not None and hold.reason.startswith(_UNRECORDED):
            hold.jump_ms = hold.since_ms - timestamp_ms
            side = "ahead of" if hold.jump_ms > 0 else "behind"
            hold.reason = f"{_UNRECORDED}; the clock is {abs(hold.jump_ms)} ms {side} the newest record"

    def confirm(self, reading: Reading) -> None:
        """Believe the clock as it is, because an operator has confirmed it."""
        self._believe(reading, 0)

    # -- verdicts

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing may be deleted by time; None while the clock is believed."""
        hold = self._hold
        if hold is None:
            return self._others
        alarming = hold.cause is not Cause.STOP or abs(hold.jump_ms) > self._limits.grace_ms()
        return Doubt(hold.cause, hold.reason, alarming, self.grace_left_ms)

    @property
    def is_compared(self) -> bool:
        """Returns true once the clock was compared with a reference, or is known to need none."""
        return self._others is None or self._others.reason is not NOT_COMPARED

    @property
    def grace_left_ms(self) -> float:
        """How long the time is not accepted yet; 0 without a hold."""
        return 0.0 if self._hold is None else self._hold.left_ms(self._limits.grace_ms())

    @property
    def standing(self) -> Standing:
        if self._hold is not None:
            return Standing.HELD
        return Standing.NEW if self._is_new else Standing.BELIEVED

    def saved(self) -> SavedClock:
        """The state to keep for the next start."""
        last, expected = self._last, self._expected
        held_ms = 0 if self._hold is None else round(self._limits.grace_ms() - self.grace_left_ms)
        believed = _UNKNOWN_MS if expected is None else round(expected + last.monotonic_ms)
        if self._is_new and self._others is not None:
            # The clock of a new broker is no evidence before another clock agrees with it.
            believed = _UNKNOWN_MS
        return SavedClock(believed, last.wall_ms, max(0, held_ms), self.watched_since_ms)

    def _jumped(self, reading: Reading, jump_ms: float) -> _Hold:
        side = "ahead" if jump_ms > 0 else "back"
        reason = f"the clock was set {side} by {abs(round(jump_ms))} ms while the broker was running"
        return _Hold(Cause.JUMP, reading.base_ms, jump_ms, reading.wall_ms, reason)

    def _believe(self, reading: Reading, watched_since_ms: int) -> None:
        self._hold = None
        self._expected = reading.base_ms
        self.watched_since_ms = watched_since_ms


def back_limit_ms(limit_ms: int) -> int:
    """The difference at which a clock that was off counts as right again; less than `limit_ms`."""
    return limit_ms * 3 // 4


def _stopped(jump_ms: float) -> str:
    if jump_ms < 0:
        return f"the clock is {abs(round(jump_ms))} ms behind the time before the stop"
    return f"the broker was stopped for {round(jump_ms / 1000)} s, or the clock is ahead"
