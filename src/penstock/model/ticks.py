"""Common times for periodic work, so that an idle broker wakes up once for all work of the same second.

Why: after a pause, the caches of a core hold other data, so a wake-up costs more than most periodic work. A
machine may run one broker per core (`penstock up --cores`), and pays for the wake-ups of all of them.
"""

from __future__ import annotations

from math import floor
from typing import Final

__all__ = ["until_tick"]

#: a tick that is closer than this part of the interval is skipped: the timer for it may have fired early
_TOO_CLOSE: Final = 0.1


def until_tick(now_s: float, interval_s: float) -> float:
    """Seconds until the next multiple of `interval_s` on the clock that shows `now_s`.

    Timers with intervals of 0.5, 1 and 5 s fire together every 5 s, whenever they were started. Brokers of
    one machine have the same clock: work that writes files or sends many requests should not use ticks.
    """
    return (floor(now_s / interval_s + _TOO_CLOSE) + 1) * interval_s - now_s
