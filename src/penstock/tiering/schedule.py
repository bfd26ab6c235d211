"""Decides whose turn it is to copy: those that have waited longest, and not those that failed just now."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.ports import Rng

__all__ = ["CopySchedule"]

K = TypeVar("K", bound=Hashable)
#: Kafka's remote.log.manager.task.retry.backoff.ms, .backoff.max.ms and .jitter
_BACKOFF_S: Final = 0.5
_BACKOFF_MAX_S: Final = 30.0
_JITTER: Final = 0.2


@dataclass(slots=True)
class _Record:
    served: int = 0
    failures: int = 0
    not_before_s: float = 0.0


class CopySchedule(Generic[K]):
    """The turns of one broker's partitions. A key has at most one turn at a time."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._records: dict[K, _Record] = {}
        self._running: set[K] = set()
        self._turns = 0

    def due(self, wanted: Iterable[K], now_s: float) -> K | None:
        """The key to serve next of those that want a turn; its turn has begun."""
        found, record = None, None
        for key in wanted:
            each = self._records.get(key) or _Record()
            if key in self._running or each.not_before_s > now_s:
                continue
            if record is None or each.served < record.served:
                found, record = key, each
        if found is not None and record is not None:
            self._turns += 1
            record.served = self._turns
            self._records[found] = record
            self._running.add(found)
        return found

    def ended(self, key: K, now_s: float, *, failed: bool) -> float:
        """The turn of `key` is over; returns the seconds for which it has to wait if it has failed."""
        self._running.discard(key)
        record = self._records.setdefault(key, _Record())
        if not failed:
            record.failures, record.not_before_s = 0, 0.0
            return 0.0
        pause_s: float = min(_BACKOFF_S * 2.0 ** min(record.failures, 16), _BACKOFF_MAX_S)
        pause_s *= self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        record.failures += 1
        record.not_before_s = now_s + pause_s
        return pause_s

    def keep(self, keys: Iterable[K]) -> None:
        """Forget all other keys."""
        kept = set(keys) | self._running
        self._records = {key: record for key, record in self._records.items() if key in kept}
