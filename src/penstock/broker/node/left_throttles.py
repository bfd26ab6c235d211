"""Ends throttles that clients have left behind, while this node is the active controller.

A throttle is left behind if no reassignment of a client is in progress for `_GRACE_MS`. Why this long: a
client sets the throttle before it starts the moves, and ends it itself when they are done.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.controller import Controller
from penstock.metadata.image import ClusterImage
from penstock.metadata.throttles import end_throttles, has_throttle, is_moving
from penstock.model.steps import Steps
from penstock.ports import Clock
from penstock.wire.schema import Struct

__all__ = ["LeftThrottles"]

log = get_logger("reassignment")
_INTERVAL_MS: Final = 1000.0
_GRACE_MS: Final = 30_000.0


class LeftThrottles:
    """The throttles of reassignments on the active controller."""

    def __init__(
        self, image: ClusterImage, controller: Controller, clock: Clock, now_ms: Callable[[], float]
    ) -> None:
        self._image = image
        self._controller = controller
        self._clock = clock
        self._now_ms = now_ms
        self._last_round_ms = -inf
        #: since when a throttle is set and nothing moves; None if that is not so
        self._idle_since_ms: float | None = None

    def begin(self) -> None:
        """This node is the active controller now: another one may have seen the moves."""
        self._last_round_ms, self._idle_since_ms = -inf, None

    @property
    def next_ms(self) -> float:
        """The time of the next round."""
        return self._last_round_ms + _INTERVAL_MS if has_throttle(self._image) else inf

    async def work(self) -> None:
        """End the throttle if it was left behind."""
        now_ms = self._now_ms()
        if now_ms < self._last_round_ms + _INTERVAL_MS or not has_throttle(self._image):
            return
        self._last_round_ms = now_ms
        if is_moving(self._image):
            self._idle_since_ms = None
            return
        if self._idle_since_ms is None:
            self._idle_since_ms = now_ms
        if now_ms - self._idle_since_ms < _GRACE_MS:
            return
        ended = await self._controller.change(self._decide)
        self._idle_since_ms = None
        if ended:
            log.info("throttle_ended", resources=ended)

    def _decide(self) -> Steps[tuple[list[Struct], int]]:
        """A move may have started since the last round."""
        if is_moving(self._image):
            return [], 0
        return (yield from end_throttles(self._image, self._clock.now_ms()))
