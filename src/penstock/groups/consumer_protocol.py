"""The embedded consumer protocol: subscriptions and assignments in the opaque bytes of a classic group.

The broker passes these bytes through. It decodes them for the subscribed topics of a group, and when
classic members are in a group of the new protocol. A newer version is decoded as the newest known one:
newer versions only add fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.wire.compiler import decoder, encoder
from penstock.wire.schema import Struct, array, int32, nullable_bytes, nullable_string, string

__all__ = [
    "PROTOCOL_TYPE",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "subscribed_topics",
]

#: the protocol type of groups whose members follow this format
PROTOCOL_TYPE: Final = "consumer"
_HIGHEST: Final = 3
_VERSION: Final = struct.Struct(">h")


class TopicPartitionList(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class Subscription(Struct):
    topics: list[str] = array(string())
    user_data: bytes | None = nullable_bytes()
    owned_partitions: list[TopicPartitionList] = array(TopicPartitionList, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = nullable_string("3+")


class Assignment(Struct):
    assigned_partitions: list[TopicPartitionList] = array(TopicPartitionList)
    user_data: bytes | None = nullable_bytes()


def subscription_version(metadata: bytes) -> int:
    if len(metadata) < _VERSION.size:
        raise ProtocolError(f"a subscription of {len(metadata)} bytes")
    (version,) = _VERSION.unpack_from(metadata)
    if version < 0:
        raise ProtocolError(f"a subscription of version {version}")
    return int(version)


def decode_subscription(metadata: bytes) -> Subscription:
    """The subscription and owned partitions of a member; ProtocolError if the bytes are malformed."""
    return _decode(metadata, min(subscription_version(metadata), _HIGHEST))


def subscribed_topics(subscriptions: Iterable[bytes]) -> set[str]:
    """All topics that members subscribe to. Decodes only the fields of version 0."""
    topics: set[str] = set()
    for metadata in set(subscriptions):  # most members of a large group have the same subscription
        subscription_version(metadata)
        topics.update(_decode(metadata, 0).topics)
    return topics


def decode_assignment(data: bytes) -> Assignment:
    """The assignment of a member of a classic group. No bytes mean no partitions."""
    if not data:
        return Assignment()
    subscription_version(data)
    return decoder(Assignment, 0, False)(memoryview(data), _VERSION.size)


def encode_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member whose subscription has `version`."""
    message = Assignment(
        assigned_partitions=[
            TopicPartitionList(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
        ]
    )
    (part,) = encoder(Assignment, 0, False)(message)
    assert isinstance(part, bytes | bytearray)
    return _VERSION.pack(min(version, _HIGHEST)) + bytes(part)


def _decode(metadata: bytes, version: int) -> Subscription:
    return decoder(Subscription, version, False)(memoryview(metadata), _VERSION.size)
