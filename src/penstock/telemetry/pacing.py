"""Time that passes faster or slower than ours, and that can be told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeAlias

__all__ = ["Pace", "paced"]

#: Told the simulated or recorded second of what comes next; waits for it, and says whether to go on.
Pace: TypeAlias = Callable[[float], bool]


def paced(speed: float, stop: Event, clock: Callable[[], float] = time.monotonic) -> Pace:
    """`speed` of its seconds pass in one of ours; a speed of 0 never waits."""
    began = clock()

    def wait(second: float) -> bool:
        ahead = began + second / speed - clock() if speed else 0.0
        return not stop.wait(max(ahead, 0.0))

    return wait
