"""The idempotent keys of one partition that were processed within the window, bounded in time and number.

A key is forgotten when the window has passed since it was processed. If there are more keys than the limit,
the oldest ones are forgotten before that: a later duplicate of theirs is processed again. `evicted` counts
them.

Memory: about 250 bytes per key, for a key of up to 64 bytes. A longer key is replaced by its BLAKE2b hash.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

__all__ = ["KEY_BYTES", "SeenKeys", "stored_key"]

#: the size of the largest key that is stored as it is, and of a hash
KEY_BYTES: Final = 64


def stored_key(key: bytes) -> bytes:
    """The key as it is stored: itself, or a hash of the same bound."""
    return key if len(key) <= KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest()


class SeenKeys:
    """Invariant: at most `limit` keys."""

    def __init__(self, window_ms: int, limit: int) -> None:
        self._window_ms = window_ms
        self._limit = limit
        #: when each key was processed; the last one processed is at the end
        self._times: OrderedDict[bytes, int] = OrderedDict()
        #: keys that were forgotten within their window
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._times)

    def is_seen(self, key: bytes, now_ms: int) -> bool:
        """Returns true if the key was processed within the window."""
        at_ms = self._times.get(key)
        return at_ms is not None and now_ms - at_ms < self._window_ms

    def add(self, key: bytes, at_ms: int, now_ms: int) -> None:
        """Remember a key that was processed at that time, unless it is too long ago."""
        times = self._times
        while times and now_ms - next(iter(times.values())) >= self._window_ms:
            times.popitem(last=False)
        if now_ms - at_ms >= self._window_ms:
            return
        times[key] = at_ms
        times.move_to_end(key)
        while len(times) > self._limit:
            times.popitem(last=False)
            self.evicted += 1
