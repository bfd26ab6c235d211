"""What is read of an archived partition: the manifest, the offsets, and what a cut decided. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.archive.cuts import CutPartition
from penstock.records.committed import PlacedBatch
from penstock.remote.chunks import OpenTransaction
from penstock.scan.place import ArchivePlace
from penstock.storage.transactions import AbortedTransaction

__all__ = ["Part", "decided", "shown"]

_FOREVER = (1 << 63) - 1


@dataclass(frozen=True)
class Part:
    """The offsets [first, stop) of one partition, as one manifest has them. It can be sent to a worker."""

    place: ArchivePlace
    #: the name of the manifest, and the SHA-256 that it has to have
    manifest: str
    sha256: str
    first: int
    stop: int
    #: of a backup: what its cut decided about transactions
    cut: CutPartition | None = None


def decided(
    aborted: Iterable[AbortedTransaction], still_open: Iterable[OpenTransaction], cut: CutPartition | None
) -> tuple[AbortedTransaction, ...]:
    """The transactions whose records readers of committed records do not see.

    A transaction without a marker in the archive is aborted, unless the cut says that it was committed.
    """
    kept = set() if cut is None else {each.producer_id for each in cut.open if each.committed}
    opened = (each for each in still_open if each.producer_id not in kept)
    return (
        *aborted,
        *(AbortedTransaction(each.producer_id, each.first_offset, _FOREVER, _FOREVER) for each in opened),
    )


def shown(
    batches: Iterable[PlacedBatch], hidden: Iterable[AbortedTransaction] | None
) -> Iterator[PlacedBatch]:
    """The batches that are not of hidden transactions; all of them if `hidden` is None."""
    if not hidden:
        yield from batches
        return
    spans: dict[int, list[tuple[int, int]]] = {}
    for each in hidden:
        spans.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
    for placed in batches:
        header = placed[1]
        of_producer = spans.get(header.producer_id) if header.is_transactional else None
        if of_producer is None or not any(first <= header.base_offset <= last for first, last in of_producer):
            yield placed
