"""Times in which no further request of a connection is served: while it is held, or muted (KIP-219).

A connection is held by its server until it is within the limits of connections. It is muted for the throttle
time of a quota.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

__all__ = ["Muting"]


class Muting:
    """The state of one connection. Owned by the event loop's thread."""

    __slots__ = ("_loop", "_on_end", "_timer", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the time of a muted connection is over."""
        self._loop = loop
        self._on_end = on_end
        self._timer: asyncio.TimerHandle | None = None
        #: until when no request is served, by the loop's time; 0 if requests are served
        self.until = 0.0

    @property
    def is_held(self) -> bool:
        return self.until == inf

    def hold(self) -> None:
        """Serve nothing until `release`."""
        self.until = inf

    def release(self) -> None:
        self.until = 0.0

    def mute(self, seconds: float) -> bool:
        """Serve nothing for a while; returns false if that is over before an earlier time ends."""
        until = self._loop.time() + seconds
        if until <= self.until:
            return False
        self.until = until
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._check)
        return True

    def _check(self) -> None:
        self._timer = None
        if self.until > self._loop.time():
            # It was muted again meanwhile.
            self._timer = self._loop.call_at(self.until, self._check)
            return
        self.until = 0.0
        self._on_end()

    def close(self) -> None:
        """The connection has ended: no timer may outlive it."""
        if self._timer is not None:
            self._timer.cancel()
