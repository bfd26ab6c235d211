"""Acquires records of a share partition for a member, from batches that were read from the log.

Only the headers of batches are used. Offsets between batches, and batches without records for the group
(control batches, and aborted ones if the group reads committed records), are archived here. Kafka delivers
some of them, and the client acknowledges them as gaps.

Poison records: from half of the delivery limit on, a batch is delivered in smaller parts, each half of the
one before. The last delivery is of one record alone. So a record that crashes its consumers does not take
the other records of its batch to the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.shares.in_flight import Run
from penstock.shares.partition import ShareLimits, SharePartition
from penstock.shares.states import RecordState

__all__ = ["AcquireRequest", "Acquired", "FetchedBatch", "acquire"]

#: from this delivery count on, at least, batches are delivered in smaller parts
_SMALLER_FROM: Final = 2
#: a delivery limit up to this one has no delivery of one record alone
_NOT_ALONE: Final = 2


class FetchedBatch(NamedTuple):
    """The offsets of a batch in the log."""

    first: int
    last: int
    #: false for a batch that the group does not read
    is_data: bool = True


class AcquireRequest(NamedTuple):
    member: str
    records_max: int
    #: the preferred number of records that are acknowledged together
    batch_size: int
    #: true if `records_max` is a strict limit. Otherwise whole batches are acquired.
    is_strict: bool = False


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class _Piece(NamedTuple):
    """Offsets that the log was read for."""

    first: int
    last: int
    is_data: bool


def acquire(
    partition: SharePartition,
    request: AcquireRequest,
    fetch_offset: int,
    batches: Sequence[FetchedBatch],
    limits: ShareLimits,
    now_ms: int,
) -> list[Acquired]:
    """Acquire available records from `fetch_offset` to the end of `batches`.

    `batches` are those that the log has from `fetch_offset` on, without one left out.
    """
    acquisition = _Acquisition(partition, request, limits, now_ms + limits.lock_ms)
    pieces = list(_pieces(fetch_offset, batches))
    if pieces and request.records_max > 0:
        acquisition.take_available(pieces)
        if not acquisition.is_alone:
            acquisition.take_new(pieces)
    partition.advance_start()
    return acquisition.acquired


def _pieces(fetch_offset: int, batches: Sequence[FetchedBatch]) -> Iterator[_Piece]:
    """The offsets from `fetch_offset` on, with the gaps between batches."""
    at = fetch_offset
    for batch in batches:
        if batch.last < at:
            continue
        if batch.first > at:
            yield _Piece(at, batch.first - 1, False)
        yield _Piece(max(at, batch.first), batch.last, batch.is_data)
        at = batch.last + 1


class _Acquisition:
    """An acquire request, with the records that it has acquired so far."""

    def __init__(
        self, partition: SharePartition, request: AcquireRequest, limits: ShareLimits, deadline_ms: int
    ) -> None:
        self._partition = partition
        self._request = request
        self._limits = limits
        self._deadline_ms = deadline_ms
        self.acquired: list[Acquired] = []
        self._count = 0
        #: true if the response must not have other records
        self.is_alone = False

    @property
    def _missing(self) -> int:
        return self._request.records_max - self._count

    def _lock(self, run: Run) -> None:
        self._partition.lock(run, self._request.member, self._deadline_ms)
        self.acquired.append(Acquired(run.first, run.last, run.delivery_count))
        self._count += len(run)

    # -- records that were delivered before

    def take_available(self, pieces: Sequence[_Piece]) -> None:
        partition = self._partition
        if not partition.available:
            return
        first, last = pieces[0].first, pieces[-1].last
        for piece in pieces:
            if not piece.is_data:
                self._archive(piece)
        for run in self._available(first, last):
            if self._missing <= 0:
                return
            smaller = self._smaller_size(run)
            if smaller is not None and self._count:
                self.is_alone = True
                return
            wanted = len(run) if smaller is None else min(smaller, len(run))
            if self._request.is_strict:
                wanted = min(wanted, self._missing)
            self._lock(partition.runs.exactly(run.first, run.first + wanted - 1)[0])
            if smaller is not None:
                self.is_alone = True
                return

    def _archive(self, piece: _Piece) -> None:
        for run in self._available(piece.first, piece.last):
            self._partition.archive(run)

    def _available(self, first: int, last: int) -> list[Run]:
        """Available runs between `first` and `last`, split off at both ends."""
        runs = self._partition.runs
        found: list[Run] = []
        for run in runs.overlapping(first, last):
            if run.is_available:
                found += runs.exactly(max(first, run.first), min(last, run.last))
        return found

    def _smaller_size(self, run: Run) -> int | None:
        """The number of records that a run with many failed deliveries may have; None for any number."""
        limit = self._limits.delivery_count
        smaller_from = max(_SMALLER_FROM, -(-limit // 2))
        if run.delivery_count < smaller_from:
            return None
        if limit > _NOT_ALONE and run.delivery_count >= limit - 1:
            return 1
        return max(1, run.batch_size >> (run.delivery_count - smaller_from + 1))

    # -- new records

    def take_new(self, pieces: Sequence[_Piece]) -> None:
        """Add the records behind those in flight, in runs of about `batch_size`."""
        partition, request = self._partition, self._request
        missing = min(self._missing, self._limits.in_flight - partition.in_flight)
        chunk_first = chunk_last = -1
        for piece in pieces:
            first, last = max(piece.first, partition.next_offset), piece.last
            if last < first:
                continue
            if chunk_first >= 0 and (
                not piece.is_data or missing <= 0 or first - chunk_first >= request.batch_size
            ):
                self._add(chunk_first, chunk_last)
                chunk_first = -1
            if missing <= 0:
                return
            if not piece.is_data:
                partition.add(Run(first, last, RecordState.ARCHIVED, 0))
                continue
            if request.is_strict:
                last = min(last, first + missing - 1)
            if chunk_first < 0:
                chunk_first = first
            missing -= last - first + 1
            chunk_last = last
        if chunk_first >= 0:
            self._add(chunk_first, chunk_last)

    def _add(self, first: int, last: int) -> None:
        run = Run(first, last, RecordState.AVAILABLE, 0)
        self._partition.add(run)
        self._lock(run)
