"""Counts of deliveries, acknowledgements and expired locks."""

from __future__ import annotations

from penstock.shares.acknowledgement import Acknowledgement
from penstock.shares.acquisition import Acquired
from penstock.shares.partition import Expired, StateUpdate, Transition, Undeliverable
from penstock.shares.states import AcknowledgeType, DeadLetterCause, RecordState, StateBatch
from penstock.shares.stats import ShareStats


def test_records_are_counted() -> None:
    stats = ShareStats()
    stats.count_deliveries([Acquired(0, 9, 1), Acquired(20, 20, 3)])
    assert (stats.deliveries, stats.redeliveries) == (11, 1)
    stats.count_acknowledgements([Acknowledgement(0, 4, [1]), Acknowledgement(5, 6, [2, 3])])
    counts = {kind.name: count for kind, count in stats.acknowledged.items() if count}
    assert counts == {"ACCEPT": 5, "RELEASE": 1, "REJECT": 1}
    assert AcknowledgeType.RENEW in stats.acknowledged


def test_expired_locks_count_with_and_without_dead_letters() -> None:
    stats = ShareStats()
    update = StateUpdate(0, 0, [StateBatch(3, 4, RecordState.AVAILABLE, 1)])
    dead = [Undeliverable(5, 5, 5, DeadLetterCause.LIMIT)]
    stats.count_expired(Expired(True, update, Transition([], update, dead)))
    stats.count_expired(Expired(False))
    assert stats.expired == 3
