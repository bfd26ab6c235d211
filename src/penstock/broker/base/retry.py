"""Pauses between the attempts of a background task."""

from __future__ import annotations

import asyncio

from penstock.ports import Rng
from penstock.wire.backoff import Backoff

__all__ = ["RetryPause"]


class RetryPause:
    """Sleeps longer after each failure in a row, with jitter from `rng`."""

    __slots__ = ("_backoff", "_rng")

    def __init__(self, rng: Rng, first_s: float, limit_s: float) -> None:
        self._rng = rng
        self._backoff = Backoff(first_s, limit_s)

    async def wait(self) -> None:
        """Sleep after one more failure."""
        await asyncio.sleep(self._backoff.failed(self._rng.uniform(-1.0, 1.0)))

    def reset(self) -> None:
        """An attempt has succeeded: the next pause is the shortest again."""
        self._backoff.succeeded()
