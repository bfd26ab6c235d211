"""Transactions as far as a log goes: what is stable, and what was aborted."""

from __future__ import annotations

from random import Random

import pytest

from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import ColdPages
from penstock.storage.transactions import AbortedTransaction, TransactionIndex
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import append_marker, batch, flush, idempotent, marker, open_log


class Transactions:
    """A log with producers whose transactions go on side by side."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.log: Log = open_log(files)
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, count: int = 1) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self.log.append(
            idempotent(sequence, count, producer_id=producer_id, transactional=True), 0, guard=NO_VERIFICATION
        )
        self._sequences[producer_id] = sequence + count

    def end(self, producer_id: int, *, committed: bool) -> None:
        append_marker(self.log, marker(committed, producer_id=producer_id))

    def replicate(self) -> None:
        self.log.advance_high_watermark(self.log.end_offset)


def test_nothing_from_the_first_open_transaction_on_is_stable() -> None:
    t = Transactions()
    t.log.append(batch(2), 0)
    t.write(1)
    t.write(2)
    t.replicate()
    assert (t.log.high_watermark, t.log.last_stable_offset) == (4, 2)
    t.end(1, committed=True)
    t.replicate()
    assert t.log.last_stable_offset == 3
    t.end(2, committed=False)
    t.replicate()
    assert t.log.last_stable_offset == t.log.high_watermark == 6


def test_a_marker_counts_once_it_is_replicated() -> None:
    t = Transactions()
    t.write(1)
    t.replicate()
    t.end(1, committed=True)
    assert t.log.last_stable_offset == 0
    t.replicate()
    assert t.log.last_stable_offset == 2


def test_the_last_stable_offset_is_at_most_the_high_watermark() -> None:
    t = Transactions()
    t.log.append(batch(2), 0)
    t.log.advance_high_watermark(1)
    t.write(1)
    assert t.log.last_stable_offset == 1


def test_aborted_transactions_are_those_that_reach_into_the_range() -> None:
    t = Transactions()
    t.write(1, 2)  # 0, 1
    t.write(2, 2)  # 2, 3
    t.end(1, committed=False)  # 4
    t.write(1)  # 5
    t.end(2, committed=True)  # 6
    t.end(1, committed=False)  # 7
    t.write(3)  # 8
    t.end(3, committed=False)  # 9
    log = t.log
    assert log.aborted_transactions(0, 10) == [(1, 0), (1, 5), (3, 8)]
    assert log.aborted_transactions(0, 5) == [(1, 0)]
    assert log.aborted_transactions(5, 8) == [(1, 5)]
    assert log.aborted_transactions(4, 6) == [(1, 0), (1, 5)]
    assert log.aborted_transactions(6, 7) == [(1, 5)]
    assert log.aborted_transactions(10, 10) == []


def test_a_marker_without_records_leaves_no_entry() -> None:
    t = Transactions()
    t.end(1, committed=False)
    t.replicate()
    assert t.log.aborted_transactions(0, 1) == []
    assert t.log.last_stable_offset == 1


def test_a_transaction_that_ends_in_a_later_segment_is_found_from_the_earlier() -> None:
    t = Transactions()
    t.write(1)
    t.write(2)
    t.log.roll()
    t.end(1, committed=False)
    t.log.roll()
    t.end(2, committed=False)
    assert t.log.aborted_transactions(0, 1) == [(1, 0)]
    assert t.log.aborted_transactions(0, 4) == [(1, 0), (2, 1)]
    assert t.log.aborted_transactions(3, 4) == [(2, 1)]


def test_only_segments_with_aborts_are_looked_at() -> None:
    t = Transactions()
    for _ in range(20):
        t.log.append(batch(), 0)
        t.log.roll()
    assert t.log.aborted_transactions(0, 20) == []
    assert t.log.segments.aborting_since(0) == []
    t.write(1)
    t.end(1, committed=False)
    t.log.roll()
    t.log.append(batch(), 0)
    assert [segment.base_offset for segment in t.log.segments.aborting_since(3)] == [20]
    assert t.log.segments.aborting_since(22) == []
    assert t.log.aborted_transactions(3, 21) == [(1, 20)]


@pytest.mark.parametrize("clean", [True, False])
def test_open_and_aborted_transactions_survive_a_restart(clean: bool) -> None:
    files = MemoryFiles()
    t = Transactions(files)
    t.write(1)
    t.write(2)
    t.end(1, committed=False)
    t.log.roll()
    t.write(3)
    t.end(3, committed=False)
    t.log.close(clean=clean)
    log = open_log(files, clean=clean)
    log.advance_high_watermark(log.end_offset)
    assert log.aborted_transactions(0, 5) == [(1, 0), (3, 3)]
    assert log.last_stable_offset == 1
    append_marker(log, marker(False, producer_id=2))
    log.advance_high_watermark(log.end_offset)
    assert log.aborted_transactions(0, 6) == [(1, 0), (3, 3), (2, 1)]
    assert log.last_stable_offset == 6


def test_recovery_writes_the_index_again_but_not_twice() -> None:
    files = MemoryFiles()
    t = Transactions(files)
    t.write(1)
    t.end(1, committed=False)
    flush(t.log)
    for _ in range(2):
        log = open_log(files, recovery_point=2)
        assert log.aborted_transactions(0, 2) == [(1, 0)]
        log.close(clean=False)
    assert files.size(f"{t.log.path}/00000000000000000000.txnindex") == 34


def test_truncation_opens_the_transaction_again() -> None:
    t = Transactions()
    t.write(1)
    t.end(1, committed=False)
    t.log.truncate_to(1)
    t.replicate()
    assert t.log.aborted_transactions(0, 1) == []
    assert t.log.last_stable_offset == 0
    t.end(1, committed=True)
    t.replicate()
    assert t.log.last_stable_offset == 2


def test_half_an_entry_is_written_over() -> None:
    files = MemoryFiles()
    files.makedirs("/d")
    first, second = AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, 5, 6)
    TransactionIndex(files, "/d/0.txnindex").add(first)
    files.open("/d/0.txnindex").append(b"half an entry")
    index = TransactionIndex(files, "/d/0.txnindex")
    assert index.entries() == [first]
    index.add(second)
    assert TransactionIndex(files, "/d/0.txnindex").entries() == [first, second]
    assert files.size("/d/0.txnindex") == 2 * 34


def test_aborted_transactions_are_found_without_waiting_for_a_disk() -> None:
    disk = FaultyDisk(Random(0))
    t = Transactions(disk)
    t.write(1)
    t.end(1, committed=False)
    t.replicate()
    t.log.close()
    log = open_log(disk, clean=True)
    disk.evict()
    with pytest.raises(ColdPages) as cold:
        log.aborted_transactions(0, 2, cached_only=True)
    cold.value.warm()
    assert log.aborted_transactions(0, 2, cached_only=True) == [(1, 0)]


def test_a_snapshot_above_the_high_watermark_does_not_decide_a_transaction() -> None:
    """The marker may still be truncated: after a restart, too, the last stable offset waits for it."""
    files = MemoryFiles()
    t = Transactions(files)
    t.log.append(batch(), 0)  # 0
    t.log.roll()
    t.write(1)  # 1
    t.write(2)  # 2
    t.end(1, committed=True)  # 3
    t.log.roll()
    flush(t.log)
    t.log.close(clean=False)
    log = open_log(files, recovery_point=4)
    log.restore_high_watermark(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 2, "the other one is open"


def test_a_truncation_above_the_high_watermark_does_not_decide_a_transaction() -> None:
    t = Transactions()
    t.write(1)  # 0
    t.end(1, committed=False)  # 1
    t.log.roll()
    t.write(2)  # 2
    t.log.advance_high_watermark(1)
    t.log.truncate_to(2)
    assert (t.log.end_offset, t.log.last_stable_offset) == (2, 0)
    t.replicate()
    assert t.log.last_stable_offset == 2


def test_a_log_without_transactions_reads_nothing_again() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append(idempotent(0, 3), 0)
    log.roll()
    log.close()
    again = open_log(files, clean=True)
    assert again.producers.snapshot_offset == 3
    assert not again.producers.has_markers
    again.restore_high_watermark(1)
    assert again.last_stable_offset == 1


def test_a_small_transaction_and_its_commit_are_read_from_memory() -> None:
    t = Transactions()
    t.log.append(batch(), 0)  # 0
    t.write(1)  # 1
    t.end(1, committed=True)  # 2
    newest = t.log.newest(1)
    found = t.log.read(1, 1 << 20, upper=3)
    assert found is not None
    assert newest == found.read()
    t.write(1)  # 3
    t.end(1, committed=False)  # 4
    assert t.log.newest(3) is None, "a response has to list the aborted transaction"
    t.end(1, committed=True)  # 5
    assert t.log.newest(3) is t.log.newest(5) is None


def test_a_commit_of_other_batches_than_the_last_is_not_read_from_memory() -> None:
    t = Transactions()
    t.write(1)  # 0
    t.log.append(batch(100, value=b"v" * 100), 0)  # 1 to 100
    t.end(1, committed=True)  # 101
    assert t.log.newest(0) is t.log.newest(1) is None
