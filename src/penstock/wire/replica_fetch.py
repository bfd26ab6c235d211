"""Fetch responses between brokers that carry watermarks and records only, read and written by hand.

One layout is known here: that of `VERSIONS`, without errors, divergence or aborted transactions.
Every other response goes through the tables of `penstock.wire.apis.fetch`. The bytes are the same as theirs.

Why: a replicated batch takes two such responses. ADR 17 has the measurements.

`REPLICA_FETCH` is `FETCH` for a follower: a response is a `ReplicaFetchResponse` if it has this layout, a
`FetchResponse` otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from penstock.model.errors import ProtocolError
from penstock.model.ids import TopicId
from penstock.wire.api import Api
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.compiler import Decoder, Part
from penstock.wire.schema import Records
from penstock.wire.varint import encode_uvarint, read_uvarint

__all__ = [
    "FEW",
    "REPLICA_FETCH",
    "VERSIONS",
    "FetchedPartition",
    "ReplicaFetchResponse",
    "read_response",
    "write_response",
]

#: (topic id, partition, high watermark, log start offset, records)
FetchedPartition = tuple[TopicId, int, int, int, Records]
#: the session's id, and the partitions of the response
ReplicaFetchResponse = tuple[int, Sequence[FetchedPartition]]

#: the versions whose responses have this layout
VERSIONS: Final = (18,)
#: the most partitions of a response that is written here
FEW: Final = 126
#: a varint of more than one byte starts with this or more
_LONG: Final = 0x80
_NO_TAGS: Final = b"\0"
_TOPIC: Final = struct.Struct(">16sB")
#: throttle time, error, session, topics + 1
_RESPONSE: Final = struct.Struct(">ihiB")
#: partition, error, high watermark, last stable offset, log start offset, aborted + 1, preferred replica
_PARTITION: Final = struct.Struct(">ihqqqBi")
#: the size of a response, its correlation id, no tags
_HEAD: Final = struct.Struct(">iiB")
_ID_SIZE: Final = 5
#: the empty tags of a partition, its topic and the whole response
_ENDS: Final = b"\0\0\0"
#: `_RESPONSE`, `_TOPIC` and `_PARTITION` at once, for a response with one partition
_ONE_PARTITION: Final = struct.Struct(">ihiB16sBihqqqBi")
_TOPIC_SIZE, _RESPONSE_SIZE, _PARTITION_SIZE = _TOPIC.size, _RESPONSE.size, _PARTITION.size
_ONE_PARTITION_SIZE: Final = _ONE_PARTITION.size
#: where a response has its number of topics, and the number of partitions of the first
_TOPICS_AT, _PARTITIONS_AT = _RESPONSE_SIZE - 1, _RESPONSE_SIZE + _TOPIC_SIZE - 1
_pack_one, _unpack_one = _ONE_PARTITION.pack, _ONE_PARTITION.unpack_from
_unpack_topic, _unpack_response = _TOPIC.unpack_from, _RESPONSE.unpack_from
_unpack_partition: Final = _PARTITION.unpack_from


def write_response(correlation_id: int, response: ReplicaFetchResponse) -> list[Part]:
    """The bytes of a response with up to `FEW` partitions, its size first."""
    session_id, partitions = response
    if len(partitions) == 1:
        topic_id, index, high_watermark, log_start_offset, records = partitions[0]
        head = _pack_one(
            0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, -1, log_start_offset, 1, -1
        )
        length = len(records)
        head += encode_uvarint(length + 1)
        size = _ID_SIZE + len(head) + length + len(_ENDS)
        return [_HEAD.pack(size, correlation_id, 0) + head, records, _ENDS]
    topics = _by_topic(partitions)
    parts: list[Part] = []
    written = _RESPONSE.pack(0, 0, session_id, len(topics) + 1)
    size = _ID_SIZE
    for named in topics:
        written += _TOPIC.pack(named[0][0], len(named) + 1)
        for _, index, high_watermark, log_start_offset, records in named:
            length = len(records)
            entry = _PARTITION.pack(index, 0, high_watermark, -1, log_start_offset, 1, -1)
            written += entry + encode_uvarint(length + 1)
            if length:
                size += len(written) + length
                parts += (written, records)
                written = b""
            written += _NO_TAGS
        written += _NO_TAGS
    written += _NO_TAGS
    parts.append(written)
    parts[0] = _HEAD.pack(size + len(written), correlation_id, 0) + parts[0]  # type: ignore[operator]
    return parts


def read_response(frame: memoryview, offset: int) -> ReplicaFetchResponse | None:
    """The response whose body starts at `offset`; None if it has another layout."""
    try:
        if frame[offset + _TOPICS_AT] == 2 and frame[offset + _PARTITIONS_AT] == 2:
            return _read_one(frame, offset)
        _, error, session_id, topics = _unpack_response(frame, offset)
        offset += _RESPONSE_SIZE
        found: list[FetchedPartition] = []
        while 1 < topics < _LONG:
            topics -= 1
            topic_id, partitions = _unpack_topic(frame, offset)
            offset += _TOPIC_SIZE
            while 1 < partitions < _LONG:
                partitions -= 1
                index, refusal, high_watermark, _, start, aborted, _ = _unpack_partition(frame, offset)
                length, offset = read_uvarint(frame, offset + _PARTITION_SIZE)
                end = offset + length - 1
                if refusal or aborted > 1 or not length or frame[end]:
                    return None
                found.append((topic_id, index, high_watermark, start, frame[offset:end]))
                offset = end + 1
            if partitions != 1 or frame[offset]:
                return None
            offset += 1
        if error or topics != 1 or frame[offset]:
            return None
    except (struct.error, IndexError, ProtocolError):
        return None
    return session_id, found


def _read_one(frame: memoryview, offset: int) -> ReplicaFetchResponse | None:
    _, error, session_id, _, topic_id, _, index, refusal, high_watermark, _, start, aborted, _ = _unpack_one(
        frame, offset
    )
    offset += _ONE_PARTITION_SIZE
    low, high = frame[offset], frame[offset + 1]
    if low >= _LONG > high:
        # A varint of two bytes: the size of a batch with a few records.
        length = low & 0x7F | high << 7
        offset += 2
    else:
        length, offset = read_uvarint(frame, offset)
    end = offset + length - 1
    if error or refusal or aborted > 1 or not length or frame[end:].tobytes() != _ENDS:
        return None
    return session_id, ((topic_id, index, high_watermark, start, frame[offset:end]),)


def _by_topic(partitions: Sequence[FetchedPartition]) -> list[list[FetchedPartition]]:
    """The partitions in their order, one list for each run of a topic."""
    return [list(of_topic) for _, of_topic in groupby(partitions, itemgetter(0))]


class _ReplicaFetch(Api[Any, Any]):
    """Fetch with the response decoder above."""

    __slots__ = ()

    def response_decoder(self, version: int) -> Decoder[Any]:
        decode = FETCH.response_decoder(version)
        if version not in VERSIONS:
            return decode

        def read(frame: memoryview, offset: int) -> ReplicaFetchResponse | FetchResponse:
            return read_response(frame, offset) or decode(frame, offset)

        return read


REPLICA_FETCH: Final = _ReplicaFetch.like(FETCH)
