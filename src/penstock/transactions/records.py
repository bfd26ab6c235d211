"""The records of `__transaction_state`: schemas, and the framing of keys and values, as in Kafka.

A key is two bytes for its type (0) and the transactional id. A value is two bytes for its version and the
state. Version 1 is written from transaction.version 1 on. Records of unknown types and versions are skipped
when the log is read, as in Kafka.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.transactions.metadata import NO_EPOCH, TransactionMetadata
from penstock.transactions.states import TransactionState
from penstock.wire.compiler import decoder, encoder
from penstock.wire.schema import Struct, array, int8, int16, int32, int64, nullable_array, string

__all__ = ["decode_record", "encode_key", "encode_value"]

_PREFIX: Final = struct.Struct(">h")
_KEY_TYPE: Final = 0
_TAGS_FROM: Final = 1
_VERSION_MAX: Final = 1


class TransactionLogKey(Struct):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32())


class TransactionLogValue(Struct):
    """`transaction_partitions` is None in state Empty."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    #: of the client that has kept the open transaction (KIP-939)
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = nullable_array(PartitionsSchema)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


def encode_key(transactional_id: str) -> bytes:
    (part,) = encoder(TransactionLogKey, 0, False)(TransactionLogKey(transactional_id=transactional_id))
    assert isinstance(part, bytes | bytearray)
    return _PREFIX.pack(_KEY_TYPE) + bytes(part)


def encode_value(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """The value of a record in a cluster with that level of transaction.version."""
    partitions: list[PartitionsSchema] | None = None
    if metadata.state is not TransactionState.EMPTY:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in metadata.partitions:
            topics[topic].append(index)
        # Numbers are sorted in a fifth of the time of pairs, of which a transaction may have many.
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=sorted(topics[topic])) for topic in sorted(topics)
        ]
    version = 1 if transaction_version >= _TAGS_FROM else 0
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        next_producer_epoch=metadata.next_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    (part,) = encoder(TransactionLogValue, version, version >= _TAGS_FROM)(value)
    assert isinstance(part, bytes | bytearray)
    return _PREFIX.pack(version) + bytes(part)


def decode_record(key: Buffer, value: Buffer | None) -> tuple[str, TransactionMetadata | None] | None:
    """A transactional id and its state (None for a tombstone). None for an unknown type or version."""
    if _prefix(key) != _KEY_TYPE:
        return None
    decoded_key = decoder(TransactionLogKey, 0, False)(memoryview(key), _PREFIX.size)
    transactional_id = decoded_key.transactional_id
    if value is None:
        return transactional_id, None
    version = _prefix(value)
    if not 0 <= version <= _VERSION_MAX:
        return None
    decode = decoder(TransactionLogValue, version, version >= _TAGS_FROM)
    decoded = decode(memoryview(value), _PREFIX.size)
    try:
        state = TransactionState(decoded.transaction_status)
    except ValueError as e:
        raise ProtocolError(
            f"transactional id {transactional_id!r} has the unknown state {decoded.transaction_status}"
        ) from e
    return transactional_id, _metadata(decoded, state)


def _metadata(value: TransactionLogValue, state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=NO_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
        next_producer_epoch=value.next_producer_epoch,
    )


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"a transaction record with a key or value of {len(data)} bytes")
    return int(_PREFIX.unpack_from(data)[0])
