"""Producer snapshots: the state of a log's producers at one offset, so that a start need not read it all.

The file is like Kafka's: a version, a checksum of what follows it, then one entry per producer. Unlike there,
an entry has all the batches that are remembered: a client may repeat any of those it has in flight, and after
a restart, too, the answer must be their offset.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from crc32c import crc32c

from penstock.storage.producers import PastBatch, ProducerState

__all__ = ["SnapshotDamaged", "decode_snapshot", "encode_snapshot"]

_VERSION: Final = 2
_HEAD: Final = Struct(">hIi")
#: behind version and checksum: what the checksum covers
_CHECKED_FROM: Final = 6
#: producer id, epoch, last timestamp, coordinator epoch, start of the transaction, number of batches
_ENTRY: Final = Struct(">qhqiqB")
_BATCH: Final = Struct(">iqiq")


class SnapshotDamaged(ValueError):
    """A snapshot that cannot be what was written; an older one, or the log itself, has to do."""


def encode_snapshot(states: dict[int, ProducerState]) -> bytes:
    snapshot = bytearray(_HEAD.pack(_VERSION, 0, len(states)))
    for state in states.values():
        snapshot += _ENTRY.pack(
            state.producer_id,
            state.epoch,
            state.last_timestamp,
            state.coordinator_epoch,
            -1 if state.transaction_start is None else state.transaction_start,
            len(state.batches),
        )
        for batch in state.batches:
            snapshot += _BATCH.pack(*batch)
    checksum = crc32c(memoryview(snapshot)[_CHECKED_FROM:])
    _HEAD.pack_into(snapshot, 0, _VERSION, checksum, len(states))
    return bytes(snapshot)


def decode_snapshot(data: bytes) -> list[ProducerState]:
    try:
        version, checksum, count = _HEAD.unpack_from(data)
    except error as e:
        raise SnapshotDamaged(f"{len(data)} bytes are no snapshot") from e
    if version != _VERSION:
        raise SnapshotDamaged(f"a snapshot of version {version}")
    if crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise SnapshotDamaged("the checksum does not match")
    states = []
    position = _HEAD.size
    for _ in range(count):
        producer_id, epoch, timestamp, coordinator_epoch, start, kept = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        end = position + kept * _BATCH.size
        batches = [PastBatch(*fields) for fields in _BATCH.iter_unpack(data[position:end])]
        position = end
        transaction_start = start if start >= 0 else None
        states.append(
            ProducerState(producer_id, epoch, coordinator_epoch, timestamp, transaction_start, batches)
        )
    return states
