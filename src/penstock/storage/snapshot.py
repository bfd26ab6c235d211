"""Producer snapshots: the state of a log's producers at one offset, so that a start need not read it all.

The file is Kafka's: version 1, a checksum of what follows it, then one entry per producer with its last
batch. Behind what Kafka reads stand the batches before the last, for each producer in the same order: a
client may repeat any of those it has in flight, and after a restart, too, the answer must be their offset.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from penstock.records.checksum import crc32c
from penstock.storage.producers import PastBatch, ProducerState

__all__ = ["SnapshotDamaged", "decode_snapshot", "encode_snapshot"]

_VERSION: Final = 1
_HEAD: Final = Struct(">hIi")
#: behind version and checksum: what the checksum covers
_CHECKED_FROM: Final = 6
#: producer id, epoch; last batch: sequence, offset, offset delta; timestamp, coordinator epoch, transaction
_ENTRY: Final = Struct(">qhiqiqiq")
_OLDER_COUNT: Final = Struct(">B")
_OLDER: Final = Struct(">iqiq")
_NO_BATCH: Final = PastBatch(-1, -1, 0, -1)


class SnapshotDamaged(ValueError):
    """A snapshot that cannot be what was written; an older one, or the log itself, has to do."""


def encode_snapshot(states: dict[int, ProducerState]) -> bytes:
    snapshot = bytearray(_HEAD.pack(_VERSION, 0, len(states)))
    for state in states.values():
        last = state.batches[-1] if state.batches else _NO_BATCH
        snapshot += _ENTRY.pack(
            state.producer_id,
            state.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            state.last_timestamp,
            state.coordinator_epoch,
            -1 if state.transaction_start is None else state.transaction_start,
        )
    for state in states.values():
        older = state.batches[:-1]
        snapshot += _OLDER_COUNT.pack(len(older))
        for batch in older:
            snapshot += _OLDER.pack(*batch)
    checksum = crc32c(memoryview(snapshot)[_CHECKED_FROM:])
    _HEAD.pack_into(snapshot, 0, _VERSION, checksum, len(states))
    return bytes(snapshot)


def decode_snapshot(data: bytes) -> list[ProducerState]:
    try:
        version, checksum, count = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise SnapshotDamaged(f"a snapshot of version {version}")
        if crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
            raise SnapshotDamaged("the checksum does not match")
        entries_end = _HEAD.size + count * _ENTRY.size
        states = [_state(*entry) for entry in _ENTRY.iter_unpack(data[_HEAD.size : entries_end])]
        if entries_end < len(data):
            _add_older(states, data, entries_end)
    except error as e:
        raise SnapshotDamaged(f"{len(data)} bytes are no snapshot") from e
    return states


def _state(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerState:
    batches = [PastBatch(last_sequence, last_offset, offset_delta, timestamp)] if last_offset >= 0 else []
    start = transaction_start if transaction_start >= 0 else None
    return ProducerState(producer_id, epoch, coordinator_epoch, timestamp, start, batches)


def _add_older(states: list[ProducerState], data: bytes, position: int) -> None:
    for state in states:
        (count,) = _OLDER_COUNT.unpack_from(data, position)
        position += _OLDER_COUNT.size
        end = position + count * _OLDER.size
        state.batches[:0] = [PastBatch(*fields) for fields in _OLDER.iter_unpack(data[position:end])]
        position = end
