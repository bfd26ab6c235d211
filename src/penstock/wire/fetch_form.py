"""Fetch of a client that asks for the same partitions again and again, without a session.

librdkafka's clients do: every request names all partitions, and from one to the next nothing changes but
offsets. A `FetchForm` is what such requests have in common. It finds the offsets of a further one, and writes
its answer, with a `struct` call each; records are put in between where there are any. The bytes are those of
the tables in `penstock.wire.apis.fetch`, tests say so.

`CLIENT_FETCH` is `FETCH` with its requests left as they came, for whoever has a form at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, TypeAlias

from penstock.wire.api import Api
from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.compiler import Decoder, Part
from penstock.wire.schema import Records
from penstock.wire.varint import encode_uvarint

__all__ = ["CLIENT_FETCH", "FetchForm", "Told"]

#: of each partition what lies before (`FetchForm.entries`), high watermark, last stable offset and log start
#: offset; and the records, with where they stand, of those that have any. All is well with every partition.
Told: TypeAlias = tuple[list[bytes | int], list[tuple[int, Records]]]

#: partitions: what is told of them is joined one by one
_MOST: Final = 32
#: topics are named by their ids, which are all of one size
_FIRST_VERSION: Final = 13
_REPLICA_UNTIL: Final = 14
_COMMITTED: Final = 1
#: what comes before the topics: waits, limits, isolation level, session, and up to version 14 a replica
_HEAD_SIZE: Final = 21
_REPLICA_SIZE: Final = 4
_TOPIC_ID_SIZE: Final = 16
#: a partition: where its offset is, and its size without tags
_OFFSET_AT: Final = 8
_PARTITION_SIZE: Final = 33
_OFFSET_SIZE: Final = 8
_NO_TAGS: Final = b"\0"
#: a partition's index and that there is no error; its three offsets
_INDEX: Final = Struct(">ih")
_OFFSETS: Final = "qqq"
_OFFSETS_SIZE: Final = 24
#: the number of aborted transactions + 1, if readers are told of them, and no preferred replica
_ABORTED: Final = Struct(">Bi")
#: the size of no records + 1
_NO_RECORDS: Final = b"\1"
#: throttle time, error, session: none of them
_NO_SESSION: Final = bytes(10)
#: the size of an answer, its correlation id, no tags
_HEAD: Final = Struct(">iiB")
_ID_SIZE: Final = 5


class FetchForm:
    """Requests that differ in nothing but the offsets, one for each partition, and what answers them."""

    __slots__ = ("_constants", "_end", "_fields", "_pack", "_size", "_unpack", "_version", "entries")

    def __init__(
        self, version: int, fields: Struct, constants: Sequence[bytes], answer: Sequence[bytes]
    ) -> None:
        self._version = version
        self._fields = fields
        self._size = fields.size
        self._unpack = fields.unpack_from
        #: what lies before, between and behind the offsets
        self._constants = tuple(constants)
        *before, self._end = answer
        layout, size = ">", 0
        #: of each partition: what lies before its offsets, and where its records stand if nobody has any
        self.entries: list[tuple[bytes, int]] = []
        for constant in before:
            layout += f"{len(constant)}s{_OFFSETS}"
            size += len(constant) + _OFFSETS_SIZE
            self.entries.append((constant, size + _ABORTED.size))
        self._pack = Struct(f"{layout}{len(self._end)}s").pack

    @classmethod
    def of(cls, version: int, request: FetchRequest, body: bytes) -> FetchForm | None:
        """The form of a request; None where it is none of the usual ones, or has not the fewest bytes."""
        if not cls.may_be_of(version, request):
            return None
        start = _HEAD_SIZE + (_REPLICA_SIZE if version <= _REPLICA_UNTIL else 0)
        layout, position = ">", 0
        at = start + len(encode_uvarint(len(request.topics) + 1))
        for topic in request.topics:
            at += _TOPIC_ID_SIZE + len(encode_uvarint(len(topic.partitions) + 1))
            for _ in topic.partitions:
                layout += f"{at + _OFFSET_AT - position}sq"
                position = at + _OFFSET_AT + _OFFSET_SIZE
                at += _PARTITION_SIZE
            at += len(_NO_TAGS)
        fields = Struct(f"{layout}{max(0, len(body) - position)}s")
        if fields.size != len(body) or not _is_usual(version, request, body, start, at):
            return None
        return cls(version, fields, fields.unpack(body)[::2], _answer(request))

    @staticmethod
    def may_be_of(version: int, request: FetchRequest) -> bool:
        """Whether a request may have a form: it has no session and names some partitions, but not many."""
        topics = request.topics
        if version < _FIRST_VERSION or request.session_id or not 0 < len(topics) <= _MOST:
            return False
        named = [len(topic.partitions) for topic in topics]
        # What is told of a topic that is named twice in a row is told as of one.
        return (
            all(named) and sum(named) <= _MOST and all(a.topic_id != b.topic_id for a, b in pairwise(topics))
        )

    def offsets(self, version: int, frame: memoryview, start: int) -> Sequence[int] | None:
        """The offsets in a request whose body starts at `start`; None where it has another form."""
        if len(frame) - start != self._size or version != self._version:
            return None
        fields = self._unpack(frame, start)
        return fields[1::2] if fields[::2] == self._constants else None

    def request(self, offsets: Sequence[int]) -> FetchRequest:
        """The request that asks for these offsets."""
        constants = self._constants
        between = [field for pair in zip(constants, offsets, strict=False) for field in pair]
        body = self._fields.pack(*between, constants[-1])
        return FETCH.request_decoder(self._version)(memoryview(body), 0)

    def write(self, correlation_id: int, told: Told) -> list[Part]:
        """An answer as it goes out, its size first: of each partition in the request's order."""
        fields, news = told
        answer = self._pack(*fields, self._end)
        size = _ID_SIZE + len(answer)
        parts: list[Part] = []
        start = 0
        for position, records in news:
            length = len(records)
            prefix = encode_uvarint(length + 1)
            size += length + len(prefix) - len(_NO_RECORDS)
            parts += (answer[start:position] + prefix, records)
            start = position + len(_NO_RECORDS)
        parts.append(answer[start:])
        parts[0] = _HEAD.pack(size, correlation_id, 0) + parts[0]  # type: ignore[operator]
        return parts


def _is_usual(version: int, request: FetchRequest, body: bytes, start: int, end: int) -> bool:
    """Whether the topics lie in [start, end) without tags, and all is written as we would."""
    encode = FETCH.request_encoder(version)
    topics, request.topics = request.topics, []
    rest = b"".join(encode(request))  # type: ignore[arg-type]  # nothing in it is a file's
    request.topics = topics
    return body[end:] == rest[start + 1 :] and body == b"".join(encode(request))  # type: ignore[arg-type]


def _answer(request: FetchRequest) -> list[bytes]:
    """What an answer without records has before, between and behind the offsets of its partitions."""
    # Only readers of committed records are told of aborted transactions, here of none.
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


class _ClientFetch(Api[Any, Any]):
    """See above: a request is its frame, where its body starts, and what would decode it."""

    __slots__ = ()

    def request_decoder(self, version: int) -> Decoder[Any]:
        decode = FETCH.request_decoder(version)
        return lambda frame, offset: (frame, offset, decode)


CLIENT_FETCH: Final = _ClientFetch.like(FETCH)
