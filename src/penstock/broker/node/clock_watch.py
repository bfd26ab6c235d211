"""Watches this broker's wall clock: reads it, saves it, and says whether it may delete something.

Retention by time, expiry of committed offsets and of producer ids, and compaction (`delete.retention.ms`)
all compare a timestamp with the wall clock. A clock that is days ahead would make them delete everything. So
they call `ClockWatch.now_ms`, which returns None while the clock is not believed. Meanwhile producers'
timestamps are not rejected either (`on_change`).

`penstock.timekeeping.trust` decides. It gets every reading of the clock, the reference clock of every
heartbeat response (`penstock.metadata.clocks`), and the time that was saved before the last stop. This module
saves the time once a minute and before a stop (`penstock.storage.clock_file`).

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.metadata.clocks import CLOCKS_DISAGREE, ReportedClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import StorageError
from penstock.ports import Clock, Workers
from penstock.storage.clock_file import ClockFile, ClockFileRefused
from penstock.timekeeping.rounds import RoundGuard, Survey
from penstock.timekeeping.trust import Cause, ClockTrust, Doubt, Reading, SavedClock, Standing

__all__ = ["ClockWatch"]

log = get_logger("clock")
_SAVE_INTERVAL_S: Final = 60.0


class ClockWatch:
    """Watches the wall clock of one broker.

    `suspended` is the reason why nothing is deleted by time, None while the clock is believed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        workers: Workers,
        file: ClockFile,
        alone: Callable[[], bool],
        on_change: Callable[[bool], None],
        *,
        is_new: bool,
    ) -> None:
        """`alone` returns true if there is no other node to compare the clock with.

        `on_change` is called with whether the clock is believed, on every change.
        `is_new` is true for a node without any data. The file is read here, before the clock is used.
        """
        self._config = config
        self._clock = clock
        self._workers = workers
        self._file = file
        self._alone = alone
        first, saved = self.read(), self._load()
        self._trust = ClockTrust(self, saved, first, is_new=is_new)
        recent = saved is not None and abs(first.wall_ms - saved.wall_ms) <= self.limit_ms()
        # An older copy of the file must not shorten the wait.
        self._rounds = RoundGuard(saved.round_waited_ms if saved is not None and recent else 0)
        #: difference from the reference at the last comparison, positive if this clock is ahead
        self.skew_ms: int | None = None
        self._reported: Cause | None = Cause.NOT_COMPARED
        self._saving: asyncio.Task[None] | None = None
        self._save_failed = False
        self._on_change = on_change

    # -- configs (`penstock.timekeeping.trust.Limits`)

    def limit_ms(self) -> int:
        return self._config.penstock_clock_skew_max_ms

    def grace_ms(self) -> int:
        return self._config.penstock_clock_grace_ms

    def confirmed_ms(self) -> int:
        return self._config.penstock_clock_confirmed_ms

    # -- readings

    def read(self) -> Reading:
        return Reading(self._clock.now_ms(), self._clock.monotonic() * 1000)

    def now_ms(self) -> int | None:
        """The wall clock for a decision that deletes something; None while it must not be used for that."""
        reading = self.read()
        self._observe(reading)
        return reading.wall_ms if self._trust.doubt is None else None

    def is_believed(self) -> bool:
        """Returns true if the wall clock may be used for a decision that deletes something."""
        return self.now_ms() is not None

    def check(self) -> Reading:
        """Detect a jump of the wall clock; to be called every few seconds. Returns the reading."""
        reading = self.read()
        self._observe(reading)
        return reading

    def report(self) -> ReportedClock:
        """The clock and its standing now."""
        return ReportedClock(self.check().wall_ms, self._trust.standing)

    def compared(self, sent: Reading, reference_ms: int, vouched: int = -1) -> None:
        """Process the reference clock of a heartbeat response; `sent` was read when the request was sent."""
        now = self.read()
        if reference_ms == CLOCKS_DISAGREE:
            self._trust.disagreed()
        elif reference_ms >= 0 and not self._alone():
            known = None if vouched < 0 else bool(vouched)
            self.skew_ms = self._trust.compared(sent, now, reference_ms, known)
        self._observe(now)

    def accept(self) -> None:
        """Believe the clock as it is now, because the operator has confirmed it."""
        self._trust.alone()
        self._trust.confirm(self.read())
        self._changed()

    def _observe(self, reading: Reading) -> None:
        self._trust.observe(reading)
        if self._alone():
            self._trust.alone()
        self._changed()

    def _changed(self) -> None:
        doubt = self._trust.doubt
        cause = None if doubt is None else doubt.cause
        before, self._reported = self._reported, cause
        if cause is before:
            return
        if doubt is None:
            if before is not Cause.NOT_COMPARED:
                log.info("deletion_by_time_resumed", skew_ms=self.skew_ms)
        elif doubt.cause is not Cause.NOT_COMPARED and before in (None, Cause.NOT_COMPARED):
            log.warning("deletion_by_time_suspended", reason=doubt.reason, limit_ms=self.limit_ms())
        if (cause is None) != (before is None):
            self._on_change(cause is None)

    # -- rounds of retention

    def may_delete_overdue(self, survey: Survey) -> bool:
        """Returns true if a round of retention may delete what was too old before the clock was watched.

        Called with the logs before every round, also while the clock is not believed: the two waits overlap.
        """
        if survey.newest_ms >= 0:
            self._trust.newest_record(survey.newest_ms)
        before = self._rounds.doubt
        may = self._rounds.may_delete(
            survey, self.read().monotonic_ms, self.grace_ms(), confirmed=self._trust.watched_since_ms == 0
        )
        waits = self._rounds.doubt
        if waits is not None and before is None and not may:
            log.warning("retention_round_waits", reason=waits.reason)
        return may

    def deleted(self, size: int) -> None:
        """Take in the bytes that a round of retention has deleted by time."""
        self._rounds.deleted(size)

    @property
    def watched_since_ms(self) -> int:
        """Since when the wall clock has run without a jump that had to be accepted."""
        return self._trust.watched_since_ms

    # -- verdicts

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing, or not everything, is deleted by time."""
        return self._trust.doubt or self._rounds.doubt

    @property
    def suspended(self) -> str | None:
        doubt = self._trust.doubt
        return None if doubt is None else str(doubt)

    @property
    def is_compared(self) -> bool:
        """Returns true once the clock was compared with a reference, or is known to need none."""
        return self._trust.is_compared

    @property
    def standing(self) -> Standing:
        return self._trust.standing

    # -- the file

    def start(self) -> None:
        self.check()
        self._saving = asyncio.get_running_loop().create_task(self._save_regularly())

    async def stop(self) -> None:
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)

    async def save(self) -> None:
        """Save the time for the next start."""
        self.check()
        saved = self._trust.saved()._replace(round_waited_ms=round(self._rounds.waited_ms))
        try:
            await self._workers.in_thread(self._file.write, saved)
        except (OSError, StorageError) as e:
            # The time that is saved is then older, which makes the next start more careful.
            if not self._save_failed:
                log.warning("clock_not_saved", path=self._file.path, error=str(e))
            self._save_failed = True
        else:
            self._save_failed = False

    async def _save_regularly(self) -> None:
        while True:
            await self.save()
            await asyncio.sleep(_SAVE_INTERVAL_S)

    def _load(self) -> SavedClock | None:
        try:
            return self._file.read()
        except ClockFileRefused as e:
            log.warning("clock_file_refused", path=self._file.path, error=str(e))
            return None
