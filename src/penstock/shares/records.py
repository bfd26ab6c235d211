"""The records of `__share_group_state`: schemas, and the framing of keys and values, as in Kafka.

A snapshot is the whole state of a share partition. An update changes the state since the last snapshot. A
snapshot without a value deletes the share partition. Unknown types are skipped when the log is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.wire.compiler import decoder, encoder
from penstock.wire.schema import Struct, array, int8, int16, int32, int64, string, uuid

__all__ = [
    "ShareKey",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StateBatchValue",
    "decode_record",
    "encode_record",
]

_PREFIX: Final = struct.Struct(">h")
_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VERSION: Final = 0


class ShareSnapshotKey(Struct):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ShareUpdateKey(Struct):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class StateBatchValue(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Struct):
    """`create_timestamp` is the time of the last snapshot that a write caused."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatchValue] = array(StateBatchValue)


class ShareUpdateValue(Struct):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatchValue] = array(StateBatchValue)


ShareKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey
_NUMBERS: Final[dict[type[Struct], int]] = {ShareSnapshotKey: _SNAPSHOT, ShareUpdateKey: _UPDATE}
_SCHEMAS: Final[dict[int, tuple[type[Struct], type[Struct]]]] = {
    _SNAPSHOT: (ShareSnapshotKey, ShareSnapshotValue),
    _UPDATE: (ShareUpdateKey, ShareUpdateValue),
}


def encode_record(
    key: Struct, value: Struct | None, version: int | None = None
) -> tuple[bytes, bytes | None]:
    """Encode a record's key and value; None for the value of a tombstone. There is one version."""
    encoded = _PREFIX.pack(_NUMBERS[type(key)]) + _joined(encoder(type(key), _VERSION, False)(key))
    if value is None:
        return encoded, None
    return encoded, _PREFIX.pack(_VERSION) + _joined(encoder(type(value), _VERSION, True)(value))


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None] | None:
    """The inverse of `encode_record`; None for an unknown type or version."""
    schemas = _SCHEMAS.get(_prefix(key))
    if schemas is None:
        return None
    key_schema, value_schema = schemas
    decoded = decoder(key_schema, _VERSION, False)(memoryview(key), _PREFIX.size)
    if value is None:
        return decoded, None
    if _prefix(value) != _VERSION:
        return None
    return decoded, decoder(value_schema, _VERSION, True)(memoryview(value), _PREFIX.size)


def _joined(parts: Sequence[object]) -> bytes:
    (part,) = parts
    assert isinstance(part, bytes | bytearray)
    return bytes(part)


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"a share group record with a key or value of {len(data)} bytes")
    return int(_PREFIX.unpack_from(data)[0])
