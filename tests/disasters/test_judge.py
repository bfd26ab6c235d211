from __future__ import annotations

import pytest

from disasters.clients import Ledger, Place
from disasters.judge import Counts, Examination, Verdict, compare, verdict_of


def _place(offset: int, topic: str = "orders") -> Place:
    return Place(topic, 0, offset)


def _value(offset: int, topic: str = "orders") -> bytes:
    return f"{topic} {offset} ...".encode()


@pytest.fixture
def ledger() -> Ledger:
    """Three acknowledged records and one committed offset."""
    return Ledger({_place(offset): _value(offset) for offset in range(3)}, 3, {("orders", 0): 3})


def _everything() -> dict[Place, bytes]:
    return {_place(offset): _value(offset) for offset in range(3)}


def _compare(
    ledger: Ledger,
    read: dict[Place, bytes],
    *,
    held: int = 3,
    on_disk: int = 3,
    committed: dict[tuple[str, int], int] | None = None,
) -> Counts:
    """Compares, where replicas held so many records after the damage and have so many in the end."""
    return compare(
        ledger,
        {_place(offset) for offset in range(held)},
        {_place(offset) for offset in range(on_disk)},
        read,
        {("orders", 0): 3} if committed is None else committed,
    )


def test_everything_read_is_nothing_lost(ledger: Ledger) -> None:
    assert _compare(ledger, _everything()) == Counts(3, 0, 0, 0, 0)


def test_a_record_that_a_replica_had_is_lost_if_none_has_it_in_the_end(ledger: Ledger) -> None:
    read = {_place(0): _value(0)}
    assert _compare(ledger, read, on_disk=1) == Counts(1, 2, 0, 0, 0)
    assert _compare(ledger, read, held=2, on_disk=1) == Counts(1, 1, 0, 0, 0)


def test_a_record_that_a_replica_has_in_the_end_is_unreadable(ledger: Ledger) -> None:
    assert _compare(ledger, {_place(0): _value(0)}, on_disk=2) == Counts(1, 1, 1, 0, 0)


def test_a_record_that_no_replica_had_any_more_is_not_held_against_the_brokers(ledger: Ledger) -> None:
    assert _compare(ledger, {_place(0): _value(0)}, held=1, on_disk=1) == Counts(1, 0, 0, 0, 0)


def test_another_record_at_an_acknowledged_offset_is_a_loss_and_wrong(ledger: Ledger) -> None:
    read = {**_everything(), _place(2): _value(7)}
    assert _compare(ledger, read, on_disk=2) == Counts(2, 1, 0, 1, 0)


def test_a_record_of_another_topic_is_wrong(ledger: Ledger) -> None:
    read = {**_everything(), _place(3): _value(3, "invoices")}
    assert _compare(ledger, read) == Counts(3, 0, 0, 1, 0)


@pytest.mark.parametrize("committed", [{("orders", 0): 2}, {("orders", 0): -1001}])
def test_a_committed_offset_that_is_gone_or_rewound_is_lost(
    ledger: Ledger, committed: dict[tuple[str, int], int]
) -> None:
    assert _compare(ledger, _everything(), committed=committed) == Counts(3, 0, 0, 0, 1)


def test_a_committed_offset_that_no_broker_answered_for_is_not_known_to_be_lost(ledger: Ledger) -> None:
    assert _compare(ledger, _everything(), committed={}) == Counts(3, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("first", "last", "verdict"),
    [
        (Examination(), None, Verdict.KEPT),
        (Examination(lost=1, whole=False), None, Verdict.LOST),
        (Examination(commits_lost=1), None, Verdict.LOST),
        (Examination(wrong=1, whole=False), None, Verdict.WRONG),
        (Examination(unreadable=1, whole=False), None, Verdict.UNREADABLE),
        (Examination(whole=False), None, Verdict.STUCK),
        (Examination(lacking={1: 3}), None, Verdict.HURT),
        (Examination(complaints=("slow",)), None, Verdict.HURT),
        (Examination(lost=9, whole=False), Examination(), Verdict.WAITED),
        (Examination(lost=9, refused=(1,)), Examination(), Verdict.REFUSED),
        (Examination(whole=False), Examination(lost=1), Verdict.LOST),
        (Examination(whole=False), Examination(whole=False), Verdict.STUCK),
    ],
)
def test_the_verdict_is_the_worst_that_is_left_in_the_end(
    first: Examination, last: Examination | None, verdict: Verdict
) -> None:
    assert verdict_of(first, last) is verdict


def test_only_kept_waited_and_refused_are_good() -> None:
    assert [verdict for verdict in Verdict if verdict.is_good] == [
        Verdict.KEPT,
        Verdict.WAITED,
        Verdict.REFUSED,
    ]
