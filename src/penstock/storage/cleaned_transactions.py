"""The transactions whose records compaction has seen, which decide the markers that it may drop.

Records of an aborted transaction go at once. A marker stays for as long as there are records that it decides
about: it may go once a whole pass has met none between the transaction's start and the marker.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import BatchHeader
from penstock.records.control import parse_end_transaction
from penstock.storage.transactions import AbortedTransaction

__all__ = ["CleanedTransactions"]


class _OpenAbort:
    """An aborted transaction whose marker has not been reached yet."""

    __slots__ = ("aborted", "has_records")

    def __init__(self, aborted: AbortedTransaction) -> None:
        self.aborted = aborted
        self.has_records = False


class CleanedTransactions:
    """Fed with the batches of a log in order, from `start` on; knows in advance what was aborted."""

    __slots__ = ("_needed", "_open_aborts", "_open_commits", "_waiting")

    def __init__(self, aborted: Iterable[AbortedTransaction], start: int) -> None:
        reaching = [transaction for transaction in aborted if transaction.last_offset >= start]
        #: transactions that have not started yet, the next one last
        self._waiting = sorted(reaching, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborts: dict[int, _OpenAbort] = {}
        self._open_commits: set[int] = set()
        self._needed: list[AbortedTransaction] = []

    def can_drop(self, batch: Buffer, header: BatchHeader) -> bool:
        """Returns true if `batch` has aborted records, or a marker without remaining records."""
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= header.last_offset:
            transaction = waiting.pop()
            self._open_aborts.setdefault(transaction.producer_id, _OpenAbort(transaction))
        if header.is_control:
            return self._end(batch, header)
        if not header.is_transactional:
            return False
        open_abort = self._open_aborts.get(header.producer_id)
        if open_abort is None:
            self._open_commits.add(header.producer_id)
            return False
        open_abort.has_records = True
        return True

    def take_needed(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers must stay, of those found since the last call."""
        needed, self._needed = self._needed, []
        return needed

    def _end(self, batch: Buffer, header: BatchHeader) -> bool:
        if header.record_count == 0:
            # emptied by an earlier pass, and kept for its producer's epoch
            return True
        try:
            marker = parse_end_transaction(batch)
        except CorruptMessage:
            # unreadable batches stay
            return False
        if marker is None:
            return False
        if marker.committed:
            has_records = header.producer_id in self._open_commits
            self._open_commits.discard(header.producer_id)
            return not has_records
        open_abort = self._open_aborts.pop(header.producer_id, None)
        if open_abort is None or not open_abort.has_records:
            return True
        self._needed.append(open_abort.aborted)
        return False
