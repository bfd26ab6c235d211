"""Decides how many chunks to read ahead of a reader.

A reader that goes from chunk to chunk gets more with each step, up to a limit; one that jumps gets none. Some
readers of a partition are told apart by the chunk at which each of them goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["ReadAhead"]

K = TypeVar("K", bound=Hashable)
#: how many readers of one partition are followed, each with a position of its own
_READERS: Final = 8


class ReadAhead(Generic[K]):
    """The readers of one partition."""

    __slots__ = ("_depths", "_limit")

    def __init__(self, limit: int = 4) -> None:
        self._limit = limit
        #: the chunk that a reader is in, or reads next -> how many chunks are read ahead of it
        self._depths: OrderedDict[K, int] = OrderedDict()

    def reads(self, chunk: K, following: K | None) -> int:
        """A reader is in `chunk`, and `following` comes next; returns how many chunks to read ahead."""
        depth = self._depths.pop(chunk, 0)
        if following is not None:
            # Within a chunk the reader asks several times: only the first time counts.
            self._depths.setdefault(following, min(max(1, 2 * depth), self._limit))
        self._depths[chunk] = depth
        while len(self._depths) > 2 * _READERS:
            self._depths.popitem(last=False)
        return depth
