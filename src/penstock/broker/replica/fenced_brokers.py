"""Brokers that were fenced a moment ago, which Metadata responses still list.

Why: librdkafka closes its handle of a broker that the metadata does not list. Partitions that are just moving
away from that broker would then wait for a second.
"""

from __future__ import annotations

from typing import Final

from penstock.ports import Clock

__all__ = ["FencedBrokers"]

#: how long Metadata responses still list a broker that was fenced
_LISTED_S: Final = 10.0


class FencedBrokers:
    """The times at which brokers were fenced."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fenced_at_s: dict[int, float] = {}

    def fenced(self, broker: int) -> None:
        """The controller has fenced `broker`."""
        self._fenced_at_s[broker] = self._clock.monotonic()

    def is_listed(self, broker: int) -> bool:
        """Returns true if `broker` was fenced so lately that clients still need its address."""
        fenced_at_s = self._fenced_at_s.get(broker)
        if fenced_at_s is None:
            return False
        if self._clock.monotonic() - fenced_at_s < _LISTED_S:
            return True
        del self._fenced_at_s[broker]
        return False
