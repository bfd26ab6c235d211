"""Producer snapshots: the state of a log's producers at one offset, so that a start need not read it all.

The file is Kafka's: version 1, a checksum of what follows it, then one entry per producer with its last
batch. Behind what Kafka reads stand the batches before the last, for each producer in the same order: a
client may repeat any of those it has in flight, and after a restart, too, the answer must be their offset.
Last stand the topic id, the partition and the offset that the snapshot belongs to: the checksum of a snapshot
of another partition, or of another offset, is right, too. Snapshots of earlier releases end before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from penstock.model.steps import Steps, at_once
from penstock.records.checksum import crc32c
from penstock.storage.producers import PastBatch, ProducerState
from penstock.storage.seals import NO_OWNER, LogOwner

__all__ = ["SnapshotDamaged", "decode_snapshot", "encode_in_steps", "encode_snapshot"]

_VERSION: Final = 1
_HEAD: Final = Struct(">hIi")
#: behind version and checksum: what the checksum covers
_CHECKED_FROM: Final = 6
#: producer id, epoch; last batch: sequence, offset, offset delta; timestamp, coordinator epoch, transaction
_ENTRY: Final = Struct(">qhiqiqiq")
_OLDER_COUNT: Final = Struct(">B")
_OLDER: Final = Struct(">iqiq")
#: topic id as text, partition, offset
_OWNER: Final = Struct(">22siq")
_NO_BATCH: Final = PastBatch(-1, -1, 0, -1)
#: producers whose entries, or earlier batches, are encoded in one step
_AT_ONCE: Final = 500


class SnapshotDamaged(ValueError):
    """A snapshot that cannot be what was written; an older one, or the log itself, has to do."""


def encode_snapshot(states: dict[int, ProducerState], owner: LogOwner, offset: int) -> bytes:
    """The snapshot at `offset` of the log of `owner`."""
    return b"".join(at_once(encode_in_steps(list(states.values()), owner, offset)))


def encode_in_steps(states: Sequence[ProducerState], owner: LogOwner, offset: int) -> Steps[list[bytes]]:
    """The pieces of the snapshot; `states` must not change meanwhile."""
    pieces = [_HEAD.pack(_VERSION, 0, len(states))]
    checksum = crc32c(pieces[0][_CHECKED_FROM:])
    for encode in (_encode_entries, _encode_older):
        for start in range(0, len(states), _AT_ONCE):
            piece = encode(states[start : start + _AT_ONCE])
            checksum = crc32c(piece, checksum)
            pieces.append(piece)
            yield
    pieces.append(_OWNER.pack(owner.topic_id.encode(), owner.partition, offset))
    checksum = crc32c(pieces[-1], checksum)
    pieces[0] = _HEAD.pack(_VERSION, checksum, len(states))
    return pieces


def _encode_entries(states: Sequence[ProducerState]) -> bytes:
    entries = bytearray()
    for state in states:
        last = state.batches[-1] if state.batches else _NO_BATCH
        entries += _ENTRY.pack(
            state.producer_id,
            state.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            state.last_timestamp,
            state.coordinator_epoch,
            -1 if state.transaction_start is None else state.transaction_start,
        )
    return bytes(entries)


def _encode_older(states: Sequence[ProducerState]) -> bytes:
    encoded = bytearray()
    for state in states:
        older = state.batches[:-1]
        encoded += _OLDER_COUNT.pack(len(older))
        for batch in older:
            encoded += _OLDER.pack(*batch)
    return bytes(encoded)


def decode_snapshot(
    data: bytes, owner: LogOwner = NO_OWNER, offset: int | None = None
) -> list[ProducerState]:
    """The producers in a snapshot; SnapshotDamaged if it is not that of `owner` at `offset`."""
    try:
        version, checksum, count = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise SnapshotDamaged(f"a snapshot of version {version}")
        if crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
            raise SnapshotDamaged("the checksum does not match")
        entries_end = _HEAD.size + count * _ENTRY.size
        states = [_state(*entry) for entry in _ENTRY.iter_unpack(data[_HEAD.size : entries_end])]
        if entries_end < len(data):
            end = _add_older(states, data, entries_end)
            if end < len(data):
                _check_owner(data, end, owner, offset)
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


def _check_owner(data: bytes, position: int, owner: LogOwner, offset: int | None) -> None:
    topic_id, partition, at = _OWNER.unpack_from(data, position)
    found = LogOwner(topic_id.rstrip(b"\0").decode(errors="replace"), partition)
    if not owner.may_be(found) or offset not in (None, at):
        raise SnapshotDamaged(f"it is the snapshot of {found} at offset {at}")


def _add_older(states: list[ProducerState], data: bytes, position: int) -> int:
    """Add the batches before the last of each producer; returns the position behind them."""
    for state in states:
        (count,) = _OLDER_COUNT.unpack_from(data, position)
        position += _OLDER_COUNT.size
        end = position + count * _OLDER.size
        state.batches[:0] = [PastBatch(*fields) for fields in _OLDER.iter_unpack(data[position:end])]
        position = end
    return position
