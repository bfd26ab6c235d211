"""The pace of simulated or recorded time, which can be stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeAlias

__all__ = ["Pace", "paced"]

#: Gets the simulated or recorded second of the next samples; waits for it, and returns whether to continue.
Pace: TypeAlias = Callable[[float], bool]


def paced(speed: float, stop: Event, clock: Callable[[], float] = time.monotonic) -> Pace:
    """`speed` simulated or recorded seconds pass per second; a speed of 0 never waits."""
    began = clock()

    def wait(second: float) -> bool:
        ahead = began + second / speed - clock() if speed else 0.0
        return not stop.wait(max(ahead, 0.0))

    return wait
