"""Limits the bytes per second that all copies of a broker send together."""

from __future__ import annotations

__all__ = ["Bandwidth"]


class Bandwidth:
    """Assigns each object the time at which it may be sent, in the order of the requests."""

    __slots__ = ("_free_at_s",)

    def __init__(self) -> None:
        self._free_at_s = 0.0

    def reserve(self, size: int, bytes_per_s: int, now_s: float) -> float:
        """Seconds to wait before `size` bytes may be sent; the next object waits for them, too."""
        start_s = max(now_s, self._free_at_s)
        self._free_at_s = start_s + size / bytes_per_s
        return start_s - now_s
