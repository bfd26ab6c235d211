"""Which batches of a read_committed fetch a consumer may see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from penstock.ports import Buffer
from penstock.records.batch import BatchHeader
from penstock.records.control import parse_end_transaction

__all__ = ["Aborted", "PlacedBatch", "committed"]

#: (producer id, first offset) of a transaction
Aborted: TypeAlias = tuple[int, int]
#: (position, header) of a batch
PlacedBatch: TypeAlias = tuple[int, BatchHeader]


def committed(
    data: Buffer, batches: Iterable[PlacedBatch], aborted: Sequence[Aborted]
) -> Iterator[PlacedBatch]:
    """The batches of a read_committed fetch that are not of `aborted` transactions, which came with it.

    A producer's batches are hidden from its transaction's first offset on until the marker that ends it.
    """
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    hidden: set[int] = set()
    for position, header in batches:
        while waiting and waiting[-1][1] <= header.last_offset:
            hidden.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in hidden:
                marker = parse_end_transaction(data[position : position + header.size])
                if marker is not None and not marker.committed:
                    hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            yield position, header
