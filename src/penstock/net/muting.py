"""Times in which no further request of a connection is served: while it is held, muted, stalled or resting.

A connection is held by its server until it is within the limits of connections. It is muted for the throttle
time of a quota (KIP-219). It is stalled while a large request is computed in slices, which keeps the order of
requests. It rests until its next turn if its requests have held the event loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from math import inf

from penstock.net.turns import Turns

__all__ = ["Muting"]


class Muting:
    """The state of one connection. Owned by the event loop's thread."""

    __slots__ = ("_changed", "_is_resting", "_loop", "_on_end", "_stalled", "_timer", "until")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], changed: Callable[[], None]
    ) -> None:
        """`on_end` is called when the time of a muted connection is over.

        `changed` is called when a connection is stalled or rests, and when that is over.
        """
        self._loop = loop
        self._on_end = on_end
        self._changed = changed
        #: large requests that are not answered yet
        self._stalled = 0
        self._is_resting = False
        self._timer: asyncio.TimerHandle | None = None
        #: until when no request is served, by the loop's time; 0 if requests are served
        self.until = 0.0

    @property
    def is_active(self) -> bool:
        """Returns true if no request is served for one of the reasons."""
        return self.until > 0 or self._stalled > 0 or self._is_resting

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

    def stall(self) -> None:
        """Serve nothing until `unstall`."""
        self._stalled += 1
        self._changed()

    def unstall(self) -> None:
        self._stalled -= 1
        self._changed()

    def rest(self, turns: Turns, owner: Hashable) -> None:
        """Serve nothing until it is the owner's turn."""
        if not self._is_resting:
            self._is_resting = True
            turns.wait(owner, self._rested)
            self._changed()

    def _rested(self) -> None:
        self._is_resting = False
        self._changed()

    def close(self) -> None:
        """The connection has ended: no timer may outlive it."""
        if self._timer is not None:
            self._timer.cancel()
