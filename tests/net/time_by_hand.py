"""An event loop's time in the test's own hands: what a limit in seconds does, however fast the machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast


class _Timer:
    def __init__(self, when: float, call: Callable[[], Any]) -> None:
        self.when = when
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TimeByHand:
    """The running loop, but for its time: that stands still until `advance`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self._timers: list[_Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        timer = _Timer(when, lambda: callback(*args))
        self._timers.append(timer)
        return timer

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        return self.call_at(self._now + delay, callback, *args)

    def advance(self, seconds: float) -> None:
        """Let time pass, and what is due meanwhile happen, each at its own time."""
        until = self._now + seconds
        while due := [each for each in self._timers if each.when <= until and not each.is_cancelled]:
            first = min(due, key=lambda each: each.when)
            self._timers.remove(first)
            self._now = max(self._now, first.when)
            first.call()
        self._now = until
