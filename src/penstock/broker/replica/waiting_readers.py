"""The requests that wait for more readable bytes of a partition."""

from __future__ import annotations

from typing import Final, Protocol

from penstock.storage.log import Log

__all__ = ["A_LOT", "Waiter", "WaitingReaders"]

#: more bytes than any request waits for
A_LOT: Final = 1 << 62


class Waiter(Protocol):
    """A request that waits for more bytes below the high watermark, or below the last stable offset."""

    def more(self, size: int) -> None: ...


class WaitingReaders(dict[Waiter, int | None]):
    """The waiting requests of one partition, in the order of arrival: the longest wait is served first.

    The value is None for a reader of all records below the high watermark. For a reader of committed records
    it is the last stable offset up to which it has read. Only a move of that offset wakes it: behind an open
    transaction, each append would.
    Why a dict: a fetch joins and leaves all its partitions each time it waits, and each append looks for
    waiting requests. Neither calls a function for that.
    """

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def join(self, waiter: Waiter, committed: bool = False) -> None:
        """Wake `waiter` until it leaves. `committed`: it reads only up to the last stable offset."""
        self[waiter] = self._log.last_stable_offset if committed else None

    def leave(self, waiter: Waiter) -> None:
        """Wake `waiter` no more, if it waits at all."""
        self.pop(waiter, None)

    def wake(self, size: int) -> None:
        """Readers can see `size` bytes more, readers of committed records up to the last stable offset."""
        for waiter in list(self):
            # A request may leave while an earlier one is woken.
            if waiter in self:
                known = self[waiter]
                if known is None:
                    waiter.more(size)
                else:
                    self._wake_committed(waiter, known, size)

    def wake_all(self) -> None:
        """The partition's role has changed: all requests have to look at the partition again."""
        for waiter in list(self):
            waiter.more(A_LOT)

    def _wake_committed(self, waiter: Waiter, known: int, size: int) -> None:
        log = self._log
        producers = log.producers
        stable = log.high_watermark if producers.first_unstable is None else log.last_stable_offset
        if stable > known:
            self[waiter] = stable
            waiter.more(self._bytes_between(known, stable) if producers.had_transactions else size)

    def _bytes_between(self, start: int, end: int) -> int:
        """The bytes that became visible. Behind a transaction these are not the bytes that came last."""
        found = self._log.bytes_between(start, end)
        return A_LOT if found is None else max(found, 1)
