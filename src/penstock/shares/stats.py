"""Counts of deliveries and acknowledgements of a share group in one topic, since the group uses this broker.

Group ids are chosen by clients, so the counts of groups without share partitions on this broker are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from penstock.shares.acknowledgement import Acknowledgement
from penstock.shares.acquisition import Acquired
from penstock.shares.partition import Expired
from penstock.shares.states import AcknowledgeType

__all__ = ["UNUSED_MAX", "ShareStats", "StatsByGroup"]

#: how long, and for how many pairs of group and topic, counts are kept without a share partition: a group
#: whose members come and go keeps its counters
UNUSED_MS_MAX: Final = 600_000
UNUSED_MAX: Final = 1_000


class ShareStats:
    """Counts of records."""

    __slots__ = ("acknowledged", "deliveries", "expired", "partitions", "redeliveries")

    def __init__(self) -> None:
        #: the number of share partitions that are counted here
        self.partitions = 0
        self.deliveries = 0
        #: deliveries after the first one of a record
        self.redeliveries = 0
        #: by type; a release at the delivery limit is a release
        self.acknowledged = dict.fromkeys(AcknowledgeType, 0)
        #: records whose acquisition lock has expired
        self.expired = 0

    def count_deliveries(self, acquired: Iterable[Acquired]) -> None:
        for first, last, delivery_count in acquired:
            count = last - first + 1
            self.deliveries += count
            if delivery_count > 1:
                self.redeliveries += count

    def count_acknowledgements(self, batches: Sequence[Acknowledgement]) -> None:
        for first, last, types in batches:
            if len(types) == 1:
                self.acknowledged[AcknowledgeType(types[0])] += last - first + 1
            else:
                for kind in types:
                    self.acknowledged[AcknowledgeType(kind)] += 1

    def count_expired(self, expired: Expired) -> None:
        released = [] if expired.update is None else expired.update.batches
        dead = [] if expired.transition is None else expired.transition.undeliverable
        self.expired += sum(b.last - b.first + 1 for b in released)
        self.expired += sum(u.last - u.first + 1 for u in dead)


class StatsByGroup:
    """The counts of each group and topic that have share partitions on this broker, or had them recently."""

    def __init__(self) -> None:
        self._stats: dict[tuple[str, str], ShareStats] = {}
        #: those without a share partition, and since when; the oldest first
        self._unused: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._stats)

    def use(self, group: str, topic: str) -> ShareStats:
        """The counts for a share partition, until `end_use`."""
        key = group, topic
        self._unused.pop(key, None)
        stats = self._stats.get(key)
        if stats is None:
            stats = self._stats[key] = ShareStats()
        stats.partitions += 1
        return stats

    def end_use(self, group: str, topic: str, stats: ShareStats, now_ms: int) -> None:
        """A share partition is gone that counted in `stats`."""
        key = group, topic
        stats.partitions -= 1
        if stats.partitions or self._stats.get(key) is not stats:
            return
        self._unused[key] = now_ms
        if len(self._unused) > UNUSED_MAX:
            self._drop(next(iter(self._unused)))

    def drop_topics(self, names: Collection[str]) -> None:
        """Drop the counts of deleted topics."""
        for key in [key for key in self._stats if key[1] in names]:
            self._drop(key)

    def current(self, now_ms: int) -> list[tuple[tuple[str, str], ShareStats]]:
        """The counts by group and topic. Those that were unused for too long are dropped first."""
        for key, since_ms in list(self._unused.items()):
            if now_ms - since_ms <= UNUSED_MS_MAX:
                break
            self._drop(key)
        return list(self._stats.items())

    def _drop(self, key: tuple[str, str]) -> None:
        del self._stats[key]
        self._unused.pop(key, None)
