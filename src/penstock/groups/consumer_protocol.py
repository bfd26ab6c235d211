"""What classic consumers write into the opaque bytes of a group: subscriptions and assignments.

The broker passes those bytes through and looks into them only to learn which topics a group reads, and to let
classic members into a group of the new protocol. A newer version is read as the newest that we know: newer
versions only add fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.wire.compiler import Decoder, decoder, encoder
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


_decoders: dict[int, Decoder[Subscription]] = {}
_encode_assignment = encoder(Assignment, 0, False)
_decode_assignment = decoder(Assignment, 0, False)


def subscription_version(metadata: bytes) -> int:
    if len(metadata) < _VERSION.size:
        raise ProtocolError(f"a subscription of {len(metadata)} bytes")
    (version,) = _VERSION.unpack_from(metadata)
    if version < 0:
        raise ProtocolError(f"a subscription of version {version}")
    return int(version)


def decode_subscription(metadata: bytes) -> Subscription:
    """What a member subscribes to and owns; ProtocolError where the bytes say something else."""
    return _decode(metadata, min(subscription_version(metadata), _HIGHEST))


def subscribed_topics(subscriptions: Iterable[bytes]) -> set[str]:
    """All topics that members subscribe to, looking at no more than every version has."""
    topics: set[str] = set()
    for metadata in set(subscriptions):  # most members of a large group say the same
        subscription_version(metadata)
        topics.update(_decode(metadata, 0).topics)
    return topics


def decode_assignment(data: bytes) -> Assignment:
    """What the leader of a classic group gave a member; nothing at all means nothing was assigned."""
    if not data:
        return Assignment()
    subscription_version(data)
    return _decode_assignment(memoryview(data), _VERSION.size)


def encode_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member whose subscription has `version`."""
    message = Assignment(
        assigned_partitions=[
            TopicPartitionList(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
        ]
    )
    (part,) = _encode_assignment(message)
    assert isinstance(part, bytes | bytearray)
    return _VERSION.pack(min(version, _HIGHEST)) + bytes(part)


def _decode(metadata: bytes, version: int) -> Subscription:
    codec = _decoders.get(version)
    if codec is None:
        codec = _decoders[version] = decoder(Subscription, version, False)
    return codec(memoryview(metadata), _VERSION.size)
