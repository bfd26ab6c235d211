"""The records of `__consumer_offsets`: schemas, and the framing of keys and values.

A key starts with two bytes for the type of the record, a value with two bytes for its version. A value of
None is a tombstone. Unknown types are skipped when the log is read, as in Kafka, so a downgraded broker can
read the log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Final, NamedTuple, TypeAlias, cast

from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from penstock.groups.streams.records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.wire.compiler import SlicedEncoder, decoder, encoder, sliced_encoder
from penstock.wire.schema import (
    Struct,
    array,
    byte_string,
    int8,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    tagged_struct,
    uuid,
)

__all__ = ["decode_record", "encode_in_slices", "encode_record"]

_PREFIX: Final = struct.Struct(">h")
#: gives the parts of an encoded key or value
_Encode: TypeAlias = Callable[[Struct], list[bytes]]


class OffsetCommitKey(Struct):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Struct):
    """`expire_timestamp` exists in version 1 only, for clients that set a retention."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class GroupMetadataKey(Struct):
    group: str = string()


class GroupMetadataMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


class GroupMetadataValue(Struct):
    """A classic group: protocol, leader, generation and members of its last rebalance."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


class ConsumerGroupMetadataKey(Struct):
    group_id: str = string()


class ConsumerGroupMetadataValue(Struct):
    epoch: int = int32()
    #: of the subscribed topics in this epoch; a different hash calls for a new assignment
    metadata_hash: int = int64(tag=0)


class ConsumerGroupMemberMetadataKey(Struct):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = byte_string()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Struct):
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = nullable_string()
    #: of a member that uses the classic protocol in a consumer group
    classic_member_metadata: ClassicMemberMetadata | None = tagged_struct(ClassicMemberMetadata, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Struct):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Struct):
    group_id: str = string()
    member_id: str = string()


class TargetTopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ConsumerGroupTargetAssignmentMemberValue(Struct):
    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class ConsumerGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = string()
    member_id: str = string()


class CurrentTopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())
    #: the member epoch at which each partition was assigned
    assignment_epochs: list[int] | None = nullable_array(int32(), tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Struct):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class ConsumerGroupRegularExpressionKey(Struct):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Struct):
    topics: list[str] = array(string())
    version: int = int64()
    timestamp: int = int64()


class _Kind(NamedTuple):
    number: int
    key: type[Struct]
    value: type[Struct]
    #: the version that is written, the highest that can be read, and the first flexible one
    written: int
    highest: int
    flexible_from: int


_ALWAYS: Final = 0
_KINDS: Final = (
    _Kind(1, OffsetCommitKey, OffsetCommitValue, 4, 4, 4),
    _Kind(2, GroupMetadataKey, GroupMetadataValue, 3, 4, 4),
    _Kind(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0, 0, _ALWAYS),
    _Kind(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0, 0, _ALWAYS),
    _Kind(
        6,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        0,
        0,
        _ALWAYS,
    ),
    _Kind(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0, 0, _ALWAYS),
    _Kind(
        8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0, 0, _ALWAYS
    ),
    _Kind(10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, 0, 0, _ALWAYS),
    _Kind(11, ShareGroupMetadataKey, ShareGroupMetadataValue, 0, 0, _ALWAYS),
    _Kind(12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue, 0, 0, _ALWAYS),
    _Kind(13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue, 0, 0, _ALWAYS),
    _Kind(14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue, 0, 0, _ALWAYS),
    _Kind(15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue, 0, 0, _ALWAYS),
    _Kind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0, 0, _ALWAYS),
    _Kind(17, StreamsGroupMetadataKey, StreamsGroupMetadataValue, 0, 0, _ALWAYS),
    _Kind(19, StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, 0, 0, _ALWAYS),
    _Kind(
        20, StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue, 0, 0, _ALWAYS
    ),
    _Kind(21, StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue, 0, 0, _ALWAYS),
    _Kind(
        22, StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue, 0, 0, _ALWAYS
    ),
    _Kind(23, StreamsGroupTopologyKey, StreamsGroupTopologyValue, 0, 0, _ALWAYS),
)
_BY_KEY: Final = {kind.key: kind for kind in _KINDS}
_BY_NUMBER: Final = {kind.number: kind for kind in _KINDS}


def encode_record(
    key: Struct, value: Struct | None, version: int | None = None
) -> tuple[bytes, bytes | None]:
    """Encode a record's key and value. `version` is for values that are not written in the usual version."""
    key_prefix, encode_key, value_prefix, encode_value = _encoders(type(key), version)
    key_bytes = b"".join((key_prefix, *encode_key(key)))
    return key_bytes, None if value is None else b"".join((value_prefix, *encode_value(value)))


def encode_in_slices(key: Struct, value: Struct) -> Generator[None, None, tuple[bytes, bytes]]:
    """As `encode_record`, for a large value; yields after some of its elements."""
    key_bytes, _ = encode_record(key, None)
    kind = _BY_KEY[type(key)]
    encode: SlicedEncoder[Struct] = sliced_encoder(
        kind.value, kind.written, kind.written >= kind.flexible_from
    )
    parts = cast("list[bytes]", (yield from encode(value)))
    return key_bytes, b"".join((_PREFIX.pack(kind.written), *parts))


@cache
def _encoders(key: type[Struct], version: int | None) -> tuple[bytes, _Encode, bytes, _Encode]:
    """The prefix and the encoder of a type's keys, and those of its values."""
    kind = _BY_KEY[key]
    if version is None:
        version = kind.written
    return (
        _PREFIX.pack(kind.number),
        cast("_Encode", encoder(kind.key, 0, False)),
        _PREFIX.pack(version),
        cast("_Encode", encoder(kind.value, version, version >= kind.flexible_from)),
    )


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None] | None:
    """The inverse of `encode_record`; None for an unknown type, ProtocolError for malformed bytes."""
    kind = _BY_NUMBER.get(_prefix(key))
    if kind is None:
        return None
    decoded = _decode(kind.key, 0, False, key)
    if value is None:
        return decoded, None
    version = _prefix(value)
    if not 0 <= version <= kind.highest:
        raise ProtocolError(f"{kind.value.__name__} has no version {version}")
    return decoded, _decode(kind.value, version, version >= kind.flexible_from, value)


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise ProtocolError(f"a group record with a key or value of {len(data)} bytes")
    return int(_PREFIX.unpack_from(data)[0])


def _decode(cls: type[Struct], version: int, flexible: bool, data: Buffer) -> Struct:
    return decoder(cls, version, flexible)(memoryview(data), _PREFIX.size)
