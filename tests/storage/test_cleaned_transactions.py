from __future__ import annotations

from penstock.records.batch import read_header
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch
from penstock.storage.batch_filter import empty_batch
from penstock.storage.cleaned_transactions import CleanedTransactions
from penstock.storage.transactions import AbortedTransaction


def data(offset: int, producer_id: int, transactional: bool = True) -> bytes:
    record = Record(offset, 0, b"k", b"v")
    return build_batch(
        [record],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, committed: bool) -> bytes:
    end = EndTransaction(committed, 0)
    return build_end_transaction(
        end, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset
    )


def dropped(batches: list[bytes], aborted: list[AbortedTransaction], start: int = 0) -> list[bool]:
    transactions = CleanedTransactions(aborted, start)
    return [transactions.can_drop(batch, read_header(batch)) for batch in batches]


def test_records_of_committed_and_of_no_transaction_are_needed_and_so_is_their_marker() -> None:
    assert dropped([data(0, 1), data(1, 2, transactional=False), marker(2, 1, True)], []) == [False] * 3


def test_aborted_records_go_and_their_marker_stays_for_this_pass() -> None:
    aborted = AbortedTransaction(1, 0, 3, 4)
    batches = [data(0, 1), data(1, 2), data(2, 1), marker(3, 1, False), data(4, 1), marker(5, 1, True)]
    transactions = CleanedTransactions([aborted], 0)
    drops = [transactions.can_drop(batch, read_header(batch)) for batch in batches]
    assert drops == [True, False, True, False, False, False]
    assert transactions.take_needed() == [aborted]
    assert transactions.take_needed() == []


def test_markers_without_records_may_go() -> None:
    batches = [marker(2, 1, True), marker(3, 2, False)]
    transactions = CleanedTransactions([AbortedTransaction(2, 0, 3, 4)], 0)
    assert [transactions.can_drop(batch, read_header(batch)) for batch in batches] == [True, True]
    assert transactions.take_needed() == []


def test_a_marker_decides_about_its_own_transaction_only() -> None:
    batches = [data(0, 1), marker(1, 1, True), marker(3, 1, True), data(4, 1), marker(5, 1, True)]
    assert dropped(batches, []) == [False, False, True, False, False]


def test_a_transaction_that_was_aborted_before_the_start_does_not_taint_the_next() -> None:
    aborted = [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(1, 8, 9, 10)]
    batches = [data(5, 1), marker(6, 1, True), data(8, 1), marker(9, 1, False)]
    assert dropped(batches, aborted, start=4) == [False, False, True, False]


def test_emptied_markers_may_go_and_other_control_records_never() -> None:
    emptied = empty_batch(read_header(marker(2, 1, True)))
    leader_change = build_batch([Record(3, 0, b"\0\0\0\x02", b"")], base_offset=3, control=True)
    unreadable = build_batch([Record(4, 0, b"", b"")], base_offset=4, control=True)
    assert dropped([emptied, leader_change, unreadable], []) == [True, False, False]
