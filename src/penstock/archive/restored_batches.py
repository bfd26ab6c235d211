"""The batches of a restored partition: those of the archive, but for epochs and undecided transactions.

Leader epochs start again in the new cluster, so all batches get the first one: no checksum covers it. A
transaction that is open at the cut gets a marker behind the last batch, commit or abort, as the cut says.
Commit markers of transactions that are not whole in the cut become abort markers, at the same offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.archive.batches import split_batches
from penstock.archive.building import checked_header
from penstock.archive.cuts import CutPartition
from penstock.archive.errors import ArchiveDamaged
from penstock.records.batch import (
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    set_producer,
    stamp,
)
from penstock.records.control import EndTransaction, build_end_transaction, parse_end_transaction
from penstock.records.record import seal

__all__ = ["end_markers", "filler", "restored", "transactional_producers"]

#: offsets of one batch
_DELTA_MAX: Final = 2**31 - 1


def restored(
    log: memoryview,
    partition: CutPartition,
    leader_epoch: int,
    name: str,
    producer_ids: Mapping[int, int] | None = None,
) -> bytearray:
    """The batches of a segment as the new cluster stores them.

    `producer_ids` are the new ids of transactional producers, for a cluster whose own producers may have the
    old ones. Batches of other producers then have no producer.
    """
    data = bytearray()
    aborted = set(partition.aborted_markers)
    for batch in split_batches(log, name):
        header = checked_header(batch, name)
        start = len(data)
        if header.base_offset in aborted:
            data += _aborted(batch, name)
        else:
            data += batch
        if producer_ids is not None and header.producer_id >= 0:
            _give_producer(memoryview(data)[start:], header, producer_ids)
        stamp(data, start, header.base_offset, leader_epoch)
    return data


def transactional_producers(log: memoryview, name: str) -> set[int]:
    """The ids of the producers of transactions in a segment."""
    found = set()
    for batch in split_batches(log, name):
        header = checked_header(batch, name)
        if header.is_transactional:
            found.add(header.producer_id)
    return found


def _give_producer(batch: memoryview, header: BatchHeader, producer_ids: Mapping[int, int]) -> None:
    if header.is_transactional:
        set_producer(batch, producer_ids[header.producer_id], header.producer_epoch, header.base_sequence)
    else:
        set_producer(batch, NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)


def filler(base_offset: int, end_offset: int, leader_epoch: int) -> Iterator[bytes]:
    """Batches without records for offsets that compaction has removed at the end of a partition."""
    while base_offset < end_offset:
        delta = min(end_offset - base_offset, _DELTA_MAX) - 1
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=delta,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        )
        yield seal(header, b"")
        base_offset += delta + 1


def _aborted(batch: memoryview, name: str) -> bytes:
    """The marker of `batch` as an abort marker of the same size."""
    header = checked_header(batch, name)
    marker = parse_end_transaction(batch) if header.is_control else None
    if marker is None or not marker.committed:
        raise ArchiveDamaged(f"{name} has no commit marker at offset {header.base_offset}")
    changed = build_end_transaction(
        EndTransaction(False, marker.coordinator_epoch),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        timestamp=header.base_timestamp,
        base_offset=header.base_offset,
    )
    if len(changed) != len(batch):
        raise ArchiveDamaged(f"{name} has a marker of an unknown form at offset {header.base_offset}")
    return changed


def end_markers(
    partition: CutPartition, leader_epoch: int, time_ms: int, producer_ids: Mapping[int, int] | None = None
) -> Iterator[bytes]:
    """The markers of the transactions that are open at the cut, from its end offset on."""
    for n, each in enumerate(partition.open):
        yield build_end_transaction(
            EndTransaction(each.committed, 0),
            producer_id=each.producer_id if producer_ids is None else producer_ids[each.producer_id],
            producer_epoch=each.producer_epoch,
            timestamp=time_ms,
            base_offset=partition.end_offset + n,
            leader_epoch=leader_epoch,
        )
