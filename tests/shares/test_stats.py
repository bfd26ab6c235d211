"""Counts of deliveries, acknowledgements and expired locks."""

from __future__ import annotations

from penstock.shares.acknowledgement import Acknowledgement
from penstock.shares.acquisition import Acquired
from penstock.shares.partition import Expired, StateUpdate, Transition, Undeliverable
from penstock.shares.states import AcknowledgeType, DeadLetterCause, RecordState, StateBatch
from penstock.shares.stats import UNUSED_MAX, ShareStats, StatsByGroup


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


def test_counts_of_a_group_are_kept_while_it_has_share_partitions_and_for_ten_minutes() -> None:
    table = StatsByGroup()
    first, second = table.use("g", "t"), table.use("g", "t")
    assert first is second
    first.deliveries = 7
    table.end_use("g", "t", first, now_ms=0)
    assert len(table.current(10**9)) == 1, "one share partition is left"
    table.end_use("g", "t", first, now_ms=1_000)
    assert table.use("g", "t").deliveries == 7, "the group has come back"
    table.end_use("g", "t", first, now_ms=2_000)
    assert len(table.current(602_000)) == 1
    assert table.current(602_001) == []
    assert table.use("g", "t").deliveries == 0


def test_counts_by_group_ids_of_clients_are_bounded() -> None:
    table = StatsByGroup()
    kept = table.use("kept", "t")
    for number in range(3 * UNUSED_MAX):
        table.end_use(f"g{number}", "t", table.use(f"g{number}", "t"), now_ms=number)
    assert len(table) == UNUSED_MAX + 1
    assert table.use("kept", "t") is kept


def test_counts_do_not_outlive_their_topic() -> None:
    table = StatsByGroup()
    old = table.use("g", "t")
    other = table.use("g", "other")
    table.drop_topics({"t"})
    assert table.current(0) == [(("g", "other"), other)]
    new = table.use("g", "t")
    assert new is not old
    table.end_use("g", "t", old, now_ms=0)
    assert len(table.current(10**9)) == 2, "the new topic's counts are in use"
