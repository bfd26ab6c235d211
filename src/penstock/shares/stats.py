"""Counts of deliveries and acknowledgements of a share group in one topic, since the start of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.shares.acknowledgement import Acknowledgement
from penstock.shares.acquisition import Acquired
from penstock.shares.partition import Expired
from penstock.shares.states import AcknowledgeType

__all__ = ["ShareStats"]


class ShareStats:
    """Counts of records."""

    __slots__ = ("acknowledged", "deliveries", "expired", "redeliveries")

    def __init__(self) -> None:
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
