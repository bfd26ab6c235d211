"""Fetch requests that a client repeats without a fetch session, and their responses.

librdkafka names all its partitions in every request, and only the offsets change from one request to the
next. A `ClientFetchTemplate` holds the bytes that such requests share. One `struct` call finds the offsets of
a further request, and one writes its response; records are put in between. The bytes are those of the tables
in `penstock.wire.apis.fetch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, TypeAlias

from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.compiler import Part
from penstock.wire.schema import Records
from penstock.wire.varint import encode_uvarint

__all__ = ["ClientFetchTemplate", "RepeatedFetchResponse"]

#: For each partition its bytes of `ClientFetchTemplate.entries`, high watermark, last stable offset and log
#: start offset; then the records of partitions that have any, each with its position. There are no errors.
RepeatedFetchResponse: TypeAlias = tuple[list[bytes | int], list[tuple[int, Records]]]

#: the most partitions of a template, whose response is joined from one piece for each
_MOST: Final = 32
_REPLICA_UNTIL: Final = 14
_COMMITTED: Final = 1
#: API key and version, which come before the correlation id
_KEY_SIZE: Final = 4
_CORRELATION_SIZE: Final = 4
#: the fields before the topics: waits, limits, isolation level, session, and up to version 14 a replica
_HEAD_SIZE: Final = 21
_REPLICA_SIZE: Final = 4
_TOPIC_ID_SIZE: Final = 16
#: a partition: the position of its offset, and its size without tags
_OFFSET_AT: Final = 8
_PARTITION_SIZE: Final = 33
_OFFSET_SIZE: Final = 8
_NO_TAGS: Final = b"\0"
#: a partition's index and no error; its three offsets
_INDEX: Final = Struct(">ih")
_OFFSETS: Final = "qqq"
_OFFSETS_SIZE: Final = 24
#: the number of aborted transactions + 1, or 0 for an isolation level without them; no preferred replica
_ABORTED: Final = Struct(">Bi")
#: the size of no records + 1
_NO_RECORDS: Final = b"\1"
#: throttle time, error and session: all zero
_NO_SESSION: Final = bytes(10)
#: the size of a response, its correlation id, no tags
_RESPONSE_HEAD: Final = Struct(">iiB")
_ID_SIZE: Final = 5


class ClientFetchTemplate:
    """Requests that differ only in correlation id and offsets, and the layout of their responses."""

    __slots__ = ("_body_at", "_constants", "_end", "_fields", "_key", "_pack", "_size", "_unpack", "entries")

    #: The versions that have this layout. From 13 on topics are named by their ids, which have a fixed size.
    #: The general pipeline serves a newer version until its fields were compared with this layout.
    VERSIONS: Final = range(13, 19)

    def __init__(self, frame: bytes, body_at: int, fields: Struct, response: Sequence[bytes]) -> None:
        self._body_at = body_at
        self._fields = fields
        self._size = fields.size
        self._unpack = fields.unpack_from
        self._key, _, *rest = fields.unpack(frame)
        #: the bytes before, between and behind the offsets
        self._constants = tuple(rest[::2])
        *before, self._end = response
        layout, size = ">", 0
        #: of each partition: the response's bytes before its offsets, and the position of its records in a
        #: response without any
        self.entries: list[tuple[bytes, int]] = []
        for constant in before:
            layout += f"{len(constant)}s{_OFFSETS}"
            size += len(constant) + _OFFSETS_SIZE
            self.entries.append((constant, size + _ABORTED.size))
        self._pack = Struct(f"{layout}{len(self._end)}s").pack

    @classmethod
    def of(cls, request: FetchRequest, frame: bytes, body_at: int) -> ClientFetchTemplate | None:
        """The template of `request`, which `frame` holds; None if it is unusual or not encoded as by us."""
        version = int.from_bytes(frame[2:4], "big")
        if not cls.may_be_of(version, request):
            return None
        start = body_at + _HEAD_SIZE + (_REPLICA_SIZE if version <= _REPLICA_UNTIL else 0)
        layout, position = f">{_KEY_SIZE}si", _KEY_SIZE + _CORRELATION_SIZE
        at = start + len(encode_uvarint(len(request.topics) + 1))
        for topic in request.topics:
            at += _TOPIC_ID_SIZE + len(encode_uvarint(len(topic.partitions) + 1))
            for _ in topic.partitions:
                layout += f"{at + _OFFSET_AT - position}sq"
                position = at + _OFFSET_AT + _OFFSET_SIZE
                at += _PARTITION_SIZE
            at += len(_NO_TAGS)
        fields = Struct(f"{layout}{max(0, len(frame) - position)}s")
        if fields.size != len(frame) or not _is_usual(version, request, frame[body_at:], at - body_at):
            return None
        return cls(frame, body_at, fields, _response(request))

    @staticmethod
    def may_be_of(version: int, request: FetchRequest) -> bool:
        """Returns true if the request has no session and names a few partitions, each topic once."""
        topics = request.topics
        if version not in ClientFetchTemplate.VERSIONS or request.session_id or not 0 < len(topics) <= _MOST:
            return False
        named = [len(topic.partitions) for topic in topics]
        # A topic that is named twice in a row has one entry in the response.
        return (
            all(named) and sum(named) <= _MOST and all(a.topic_id != b.topic_id for a, b in pairwise(topics))
        )

    def read(self, frame: memoryview) -> tuple[int, Sequence[int]] | None:
        """Correlation id and offsets of a further request; None if `frame` holds any other request."""
        if len(frame) != self._size:
            return None
        fields = self._unpack(frame)
        if fields[2::2] != self._constants or fields[0] != self._key:
            return None
        return fields[1], fields[3::2]

    def request(self, offsets: Sequence[int]) -> FetchRequest:
        """The request with these offsets."""
        constants = self._constants
        between = [field for pair in zip(constants, offsets, strict=False) for field in pair]
        frame = self._fields.pack(self._key, 0, *between, constants[-1])
        version = int.from_bytes(self._key[2:], "big")
        return FETCH.request_decoder(version)(memoryview(frame), self._body_at)

    def write(self, correlation_id: int, response: RepeatedFetchResponse) -> list[Part]:
        """The bytes of a response, its size first; partitions come in the request's order."""
        fields, with_records = response
        body = self._pack(*fields, self._end)
        size = _ID_SIZE + len(body)
        parts: list[Part] = []
        start = 0
        for position, records in with_records:
            length = len(records)
            prefix = encode_uvarint(length + 1)
            size += length + len(prefix) - len(_NO_RECORDS)
            parts += (body[start:position] + prefix, records)
            start = position + len(_NO_RECORDS)
        parts.append(body[start:])
        parts[0] = _RESPONSE_HEAD.pack(size, correlation_id, 0) + parts[0]  # type: ignore[operator]
        return parts


def _is_usual(version: int, request: FetchRequest, body: bytes, end: int) -> bool:
    """Returns true if the topics end at `end`, so have no tags, and if we would encode the same bytes."""
    encode = FETCH.request_encoder(version)
    topics, request.topics = request.topics, []
    rest = b"".join(encode(request))  # type: ignore[arg-type]  # a request has no range of a file
    request.topics = topics
    start = _HEAD_SIZE + (_REPLICA_SIZE if version <= _REPLICA_UNTIL else 0)
    return body[end:] == rest[start + 1 :] and body == b"".join(encode(request))  # type: ignore[arg-type]


def _response(request: FetchRequest) -> list[bytes]:
    """The bytes of a response without records before, between and behind its partitions' offsets."""
    # Only a consumer of committed records receives the list of aborted transactions, here an empty one.
    behind = _ABORTED.pack(1 if request.isolation_level == _COMMITTED else 0, -1) + _NO_RECORDS + _NO_TAGS
    constants = []
    before = _NO_SESSION + encode_uvarint(len(request.topics) + 1)
    for topic in request.topics:
        before += topic.topic_id + encode_uvarint(len(topic.partitions) + 1)
        for partition in topic.partitions:
            constants.append(before + _INDEX.pack(partition.partition, 0))
            before = behind
        before += _NO_TAGS
    return [*constants, before + _NO_TAGS]
