"""Effects of a shard that wait until the records that caused them are committed."""

from __future__ import annotations

from collections import deque

from penstock.coordination.outbox import Effect

__all__ = ["UncommittedEffects"]


class UncommittedEffects:
    """Effects in the order in which the shard decided them.

    Unlike a reply, an effect has no timeout: its record may be committed at any later time, as long as this
    broker leads the partition. When the broker resigns, or an append fails, the effects are dropped.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        #: (end offset of the log when the effects were decided, effects), in ascending order
        self._waiting: deque[tuple[int, list[Effect]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, end_offset: int, effects: list[Effect]) -> None:
        self._waiting.append((end_offset, effects))

    def take_committed(self, high_watermark: int) -> list[Effect]:
        """Remove and return the effects whose records are below `high_watermark`."""
        due: list[Effect] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            due += self._waiting.popleft()[1]
        return due

    def drop(self) -> None:
        self._waiting.clear()
