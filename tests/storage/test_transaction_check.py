"""`log verify` and the transaction index: entries without markers, aborted transactions without entries."""

from __future__ import annotations

import pytest

from penstock.storage.dump import verify
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.transactions import AbortedTransaction, TransactionIndex
from tests.storage.logs import append_marker, idempotent, marker, open_log

INDEX = "00000000000000000000.txnindex"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    """Aborted and committed transactions, one that ends in the next segment, and a marker without records."""
    log = open_log(files, index_interval_bytes=0)
    for producer_id in (1, 2, 3):
        first = idempotent(0, producer_id=producer_id, transactional=True)
        log.append(first, 0, guard=NO_VERIFICATION)
    append_marker(log, marker(False, producer_id=1))
    append_marker(log, marker(True, producer_id=2))
    append_marker(log, marker(False, producer_id=4))
    log.roll()
    append_marker(log, marker(False, producer_id=3))
    log.close()
    return log


def test_a_sound_index(files: MemoryFiles, log: Log) -> None:
    assert verify(files, log.path).problems == []


def test_a_lost_index(files: MemoryFiles, log: Log) -> None:
    files.remove(f"{log.path}/{INDEX}")
    (problem,) = verify(files, log.path).problems
    assert problem.endswith("no entry for the transaction of producer 1 that is aborted at offset 3")


def test_an_entry_of_no_marker(files: MemoryFiles, log: Log) -> None:
    TransactionIndex(files, f"{log.path}/{INDEX}").add(AbortedTransaction(2, 1, 4, 5))
    (problem,) = verify(files, log.path).problems
    assert "no ABORT marker is as its entry says: " in problem
