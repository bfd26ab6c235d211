"""Which entries of a cache are kept: the latest used ones, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Residency"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Residency(Generic[K, V]):
    """A cache with a limit in bytes. Invariant: more than the limit only if there is one entry."""

    __slots__ = ("_entries", "_limit", "size")

    def __init__(self, limit: int) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._limit = limit
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Returns true if there is such an entry; it does not count as used."""
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The entry, which counts as used now."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def add(self, key: K, value: V, size: int) -> list[V]:
        """Keep an entry; returns those that had to go."""
        gone = [] if (old := self.drop(key)) is None else [old]
        self._entries[key] = (value, size)
        self.size += size
        while self.size > self._limit and len(self._entries) > 1:
            _, (oldest, bytes_freed) = self._entries.popitem(last=False)
            self.size -= bytes_freed
            gone.append(oldest)
        return gone

    def drop(self, key: K) -> V | None:
        """Remove an entry, if there is one."""
        value, size = self._entries.pop(key, (None, 0))
        self.size -= size
        return value

    def clear(self) -> list[V]:
        gone = [value for value, _ in self._entries.values()]
        self._entries.clear()
        self.size = 0
        return gone
