"""Looks at intervals for followers that lag, and for followers that may join the ISR.

A lagging follower is found within half of `replica.lag.time.max.ms`, a joining one within `_JOIN_MS`.

Why stalls are left out: a leader that did not run has not read the fetch requests of its followers. For the
time that it was away it grants them as much time (`StallAllowance`). The clock that is read for each fetch
stays the system's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from penstock.broker.base.steps import in_slices
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.sessions import ReplicaSessions
from penstock.model.config import BrokerConfig
from penstock.model.steps import Steps, slices
from penstock.ports import Clock
from penstock.replication.fetch_plan import PartitionKey

__all__ = ["LagChecks", "StallAllowance"]

#: the longest time between a follower's catching up and the leader's proposal to add it to the ISR
_JOIN_MS: Final = 500
#: checks of lagging followers in which a stall counts: they cover more than `replica.lag.time.max.ms`
_CHECKS: Final = 4


class StallAllowance:
    """The time for which the process did not run, of the last checks."""

    def __init__(self, stalled_ms: int) -> None:
        """`stalled_ms` is the whole time of all stalls so far, as in `checked`."""
        self._stalled_ms = deque([stalled_ms], maxlen=_CHECKS)

    def checked(self, stalled_ms: int) -> int:
        """Returns the milliseconds by which followers may lag longer at this check."""
        self._stalled_ms.append(stalled_ms)
        return stalled_ms - self._stalled_ms[0]


class LagChecks:
    """Runs from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        awake_clock: Clock,
        sessions: ReplicaSessions,
        led: Mapping[PartitionKey, Leadership],
        check_high_watermarks: Callable[[Iterable[Leadership]], None],
    ) -> None:
        """`awake_clock` stands still while the process does not run. `led` are the partitions led here."""
        self._config = config
        self._clock = clock
        self._awake_clock = awake_clock
        self._sessions = sessions
        self._led = led
        self._check_high_watermarks = check_high_watermarks
        self._allowance = StallAllowance(self._stalled_ms())
        self._checked_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with the checks; does nothing if they run."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def under_replicated(self) -> int:
        """The number of partitions led by this broker whose replicas are not all in sync."""
        return sum(
            len(leadership.state.isr) <= len(leadership.state.followers) for leadership in self._led.values()
        )

    async def _run(self) -> None:
        while True:
            lag_ms = self._config.replica_lag_time_max_ms
            await asyncio.sleep(min(lag_ms / 2, _JOIN_MS) / 1000)
            now_ms = self._now_ms()
            if now_ms - self._checked_at_ms >= lag_ms // 2:
                await in_slices(self._judge(now_ms))
            elif absent := self._absent():
                await in_slices(self._refresh(absent))
            else:
                continue
            self._check_high_watermarks(await in_slices(self._without_high_watermark()))

    def _judge(self, now_ms: int) -> Steps[None]:
        """Have each leadership judge its followers, in slices, all as of one moment."""
        yield from self._refresh()
        self._checked_at_ms = now_ms
        allowance_ms = self._allowance.checked(self._stalled_ms())
        judged_at_ms = self._now_ms()
        for some in slices(list(self._led.values())):
            since_then_ms = self._now_ms() - judged_at_ms
            for leadership in some:
                if leadership.partition.leadership is leadership:
                    leadership.tick(allowance_ms + since_then_ms)
            yield

    def _absent(self) -> set[int]:
        """The followers that are absent from an ISR of this broker's partitions."""
        absent: set[int] = set()
        for leadership in self._led.values():
            isr, followers = leadership.state.isr, leadership.state.followers
            if len(isr) <= len(followers):
                absent.update(followers.keys() - isr)
        return absent

    def _refresh(self, absent: Container[int] | None = None) -> Steps[None]:
        """Report the positions of all followers; of those in `absent` only where the ISR lacks them."""
        for session in self._sessions:
            if absent is None or session.replica in absent:
                yield from session.refresh(self._checked_at_ms, absent_only=absent is not None)

    def _without_high_watermark(self) -> Steps[list[Leadership]]:
        found: list[Leadership] = []
        for some in slices(list(self._led.values())):
            found += [leadership for leadership in some if leadership.needs_high_watermark_recovery]
            yield
        return found

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _stalled_ms(self) -> int:
        return int((self._clock.monotonic() - self._awake_clock.monotonic()) * 1000)
