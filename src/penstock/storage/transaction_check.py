"""Checks the transaction index of a segment against the markers in the segment.

A missing entry is worse than a missing entry of the other indexes: consumers of committed records would read
the records of an aborted transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import BatchHeader
from penstock.records.control import parse_end_transaction
from penstock.storage.transactions import AbortedTransaction

__all__ = ["index_problems"]


def index_problems(
    batches: Iterable[tuple[BatchHeader, Buffer]], entries: Iterable[AbortedTransaction]
) -> Iterator[str]:
    """The entries that no ABORT marker agrees with, and the aborted transactions without an entry.

    A transaction that starts in an earlier segment has an entry here, too. Only its marker is checked.
    """
    first_offsets: dict[int, int] = {}
    #: (producer id, offset) of the markers, with the first offset of transactions that start in this segment
    aborted: dict[tuple[int, int], int | None] = {}
    for header, batch in batches:
        if not header.is_transactional:
            continue
        if not header.is_control:
            first_offsets.setdefault(header.producer_id, header.base_offset)
            continue
        first = first_offsets.pop(header.producer_id, None)
        try:
            marker = parse_end_transaction(batch)
        except CorruptMessage:
            continue
        if marker is not None and not marker.committed:
            aborted[header.producer_id, header.base_offset] = first
    indexed = set()
    for entry in entries:
        key = (entry.producer_id, entry.last_offset)
        indexed.add(key)
        if key not in aborted:
            yield f"no ABORT marker is as its entry says: {entry}"
    for (producer_id, offset), first in aborted.items():
        if first is not None and (producer_id, offset) not in indexed:
            yield f"no entry for the transaction of producer {producer_id} that is aborted at offset {offset}"
