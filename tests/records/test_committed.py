"""The rule of read_committed consumers, as in Kafka's `CompletedFetch`."""

from __future__ import annotations

import pytest

from penstock.records.committed import committed
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch, iter_batches


def data(offset: int, producer: int = -1) -> bytes:
    transactional = producer >= 0
    record = Record(offset, 0, None, b"v")
    return build_batch([record], base_offset=offset, producer_id=producer, transactional=transactional)


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    end = EndTransaction(commit, 0)
    return bytes(
        build_end_transaction(end, producer_id=producer, producer_epoch=0, timestamp=0, base_offset=offset)
    )


def seen(log: bytes, *aborted: tuple[int, int]) -> list[int]:
    return [header.base_offset for _, header in committed(log, iter_batches(log), aborted)]


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    log = data(0) + data(1, 7) + data(2, 8) + marker(3, 7, commit=False) + data(4, 7)
    assert seen(log) == [0, 1, 2, 4]
    assert seen(log, (7, 1)) == [0, 2, 4]


def test_two_aborted_transactions_of_a_producer_are_hidden_each() -> None:
    log = data(0, 7) + marker(1, 7, commit=False) + data(2, 7) + marker(3, 7, commit=True)
    log += data(4, 7) + marker(5, 7, commit=False)
    assert seen(log, (7, 0), (7, 4)) == [2]


def test_a_fetch_that_begins_within_an_aborted_transaction_hides_the_rest_of_it() -> None:
    log = data(5, 7) + marker(6, 7, commit=False) + data(7, 7)
    assert seen(log, (7, 2)) == [7]


@pytest.mark.parametrize("order", [((7, 0), (8, 1)), ((8, 1), (7, 0))])
def test_the_list_of_aborted_transactions_may_have_any_order(order: tuple[tuple[int, int], ...]) -> None:
    log = data(0, 7) + data(1, 8) + marker(2, 8, commit=False) + data(3, 8) + marker(4, 7, commit=False)
    assert seen(log, *order) == [3]


def test_batches_without_a_transaction_are_never_hidden() -> None:
    """An idempotent producer has an id, and may write outside of transactions."""
    plain = build_batch([Record(1, 0, None, b"v")], base_offset=1, producer_id=7)
    assert seen(data(0, 7) + plain, (7, 0)) == [1]
