"""Fetch between brokers as it nearly always is: written and read by hand, with a `struct` call per partition.

A replicated batch is two such exchanges, so what they cost is what replication costs. Only one form is known
here, the newest version's with nothing unusual in it; whatever has another goes through the tables of
`penstock.wire.apis.fetch`. The bytes are the same as theirs, tests say so.

`REPLICA_FETCH` is `FETCH` with this for codecs: a request is a `ReplicaAsk` to whoever sends it, an answer an
`Answer` to whoever gets it; on either side the table's message where the other one used another form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from penstock.model.errors import ProtocolError
from penstock.model.ids import METADATA_TOPIC_ID, TopicId
from penstock.wire.api import Api
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from penstock.wire.compiler import Decoder, Encoder, Part
from penstock.wire.schema import Records
from penstock.wire.varint import encode_uvarint, read_uvarint

__all__ = [
    "FEW",
    "REPLICA_FETCH",
    "Answer",
    "ReplicaAsk",
    "Told",
    "Wanted",
    "ask_of",
    "read_answer",
    "read_ask",
    "write_answer",
    "write_ask",
]

#: (topic id, partition, leader epoch, fetch offset, last fetched epoch, log start offset, most bytes)
Wanted = tuple[TopicId, int, int, int, int, int, int]
#: (topic id, partition, high watermark, log start offset, records)
Told = tuple[TopicId, int, int, int, Records]

#: a session, and what there is to tell of its partitions
Answer = tuple[int, Sequence[Told]]
N = TypeVar("N", Wanted, Told)

#: so many partitions can be named here
FEW: Final = 126
#: a varint of more than one byte starts with this or more
_LONG: Final = 0x80
_NO_TAGS: Final = b"\0"
#: longest wait, least and most bytes, isolation level, session, its epoch, topics + 1
_ASK: Final = struct.Struct(">iiibiiB")
_TOPIC: Final = struct.Struct(">16sB")
#: partition, leader epoch, fetch offset, last fetched epoch, log start offset, most bytes, no tags
_WANTED: Final = struct.Struct(">iiqiqiB")
#: what is always the same; replica, its broker epoch, no tags
_ASKING: Final = struct.Struct(">5siqB")
#: no forgotten topics, no rack; one tag, 1, of thirteen bytes
_SAME: Final = b"\1\1\1\1\x0d"
#: throttle time, error, session, topics + 1
_ANSWER: Final = struct.Struct(">ihiB")
#: partition, error, high watermark, last stable offset, log start offset, aborted + 1, preferred replica
_TOLD: Final = struct.Struct(">ihqqqBi")
#: the size of an answer, its correlation id, no tags
_HEAD: Final = struct.Struct(">iiB")
_ID_SIZE: Final = 5
#: of a partition, its topic and all of an answer
_ENDS: Final = b"\0\0\0"
#: all of these at once, where one partition is named
_ONE_ASK: Final = struct.Struct(">iiixiiB16sBiiqiqi7siqB")
_ONE_SAME: Final = b"\0\0" + _SAME
_ONE_ANSWER: Final = struct.Struct(">ihiB16sBihqqqBi")
_ASK_SIZE, _TOPIC_SIZE, _WANTED_SIZE = _ASK.size, _TOPIC.size, _WANTED.size
_ANSWER_SIZE, _TOLD_SIZE = _ANSWER.size, _TOLD.size
_ONE_ASK_SIZE, _ONE_ANSWER_SIZE = _ONE_ASK.size, _ONE_ANSWER.size
#: in an answer: how many topics, and how many partitions of the first
_TOPICS_AT, _PARTITIONS_AT = _ANSWER_SIZE - 1, _ANSWER_SIZE + _TOPIC_SIZE - 1
_pack_one_ask, _unpack_one_ask = _ONE_ASK.pack, _ONE_ASK.unpack_from
_pack_one_answer, _unpack_one_answer = _ONE_ANSWER.pack, _ONE_ANSWER.unpack_from
_unpack_ask, _unpack_topic, _unpack_wanted = _ASK.unpack_from, _TOPIC.unpack_from, _WANTED.unpack_from
_unpack_asking, _unpack_answer, _unpack_told = _ASKING.unpack_from, _ANSWER.unpack_from, _TOLD.unpack_from


class ReplicaAsk(NamedTuple):
    """What a follower asks; `wanted` are the partitions whose place has changed since its last request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    replica: int
    broker_epoch: int
    wanted: Sequence[Wanted]
    forgotten: Sequence[tuple[TopicId, int]] = ()
    #: whether it came in the form of `read_ask`, so that whoever asked reads what `write_answer` writes
    is_usual: bool = True


#: `ReplicaAsk(…)` without the call of a Python function
_new_ask: Final = tuple.__new__


def write_ask(ask: ReplicaAsk) -> bytes:
    """The body of a request; what it names has to be `FEW`, and nothing forgotten."""
    max_wait_ms, min_bytes, max_bytes, session_id, epoch, replica, broker_epoch, wanted, _, _ = ask
    if len(wanted) == 1:
        topic_id, index, leader_epoch, at, last_epoch, start, most = wanted[0]
        return _pack_one_ask(
            max_wait_ms,
            min_bytes,
            max_bytes,
            session_id,
            epoch,
            2,
            topic_id,
            2,
            index,
            leader_epoch,
            at,
            last_epoch,
            start,
            most,
            _ONE_SAME,
            replica,
            broker_epoch,
            0,
        )
    topics = _by_topic(wanted)
    written = [_ASK.pack(max_wait_ms, min_bytes, max_bytes, 0, session_id, epoch, len(topics) + 1)]
    for named in topics:
        written.append(_TOPIC.pack(named[0][0], len(named) + 1))
        for _, index, leader_epoch, at, last_epoch, start, most in named:
            written.append(_WANTED.pack(index, leader_epoch, at, last_epoch, start, most, 0))
        written.append(_NO_TAGS)
    written.append(_ASKING.pack(_SAME, replica, broker_epoch, 0))
    return b"".join(written)


def read_ask(frame: memoryview, offset: int) -> ReplicaAsk | None:
    """The request whose body starts at `offset`; None where it has any other form."""
    if len(frame) == offset + _ONE_ASK_SIZE:
        ask = _read_one_ask(frame, offset)
        if ask is not None:
            return ask
    try:
        max_wait_ms, min_bytes, max_bytes, _, session_id, epoch, topics = _unpack_ask(frame, offset)
        offset += _ASK_SIZE
        wanted = []
        while 1 < topics < _LONG:
            topics -= 1
            topic_id, partitions = _unpack_topic(frame, offset)
            if topic_id == METADATA_TOPIC_ID:
                # Replicated by other rules.
                return None
            offset += _TOPIC_SIZE
            while 1 < partitions < _LONG:
                partitions -= 1
                index, leader_epoch, at, last_epoch, start, most, tags = _unpack_wanted(frame, offset)
                if tags:
                    return None
                offset += _WANTED_SIZE
                wanted.append((topic_id, index, leader_epoch, at, last_epoch, start, most))
            if partitions != 1 or frame[offset]:
                return None
            offset += 1
        same, replica, broker_epoch, tags = _unpack_asking(frame, offset)
    except (struct.error, IndexError):
        return None
    if topics != 1 or tags or same != _SAME:
        return None
    asked = max_wait_ms, min_bytes, max_bytes, session_id, epoch, replica, broker_epoch, wanted, (), True
    return _new_ask(ReplicaAsk, asked)


def _read_one_ask(frame: memoryview, offset: int) -> ReplicaAsk | None:
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        session_id,
        epoch,
        topics,
        topic_id,
        partitions,
        index,
        leader_epoch,
        at,
        last_epoch,
        start,
        most,
        same,
        replica,
        broker_epoch,
        tags,
    ) = _unpack_one_ask(frame, offset)
    if topics != 2 or partitions != 2 or tags or same != _ONE_SAME or topic_id == METADATA_TOPIC_ID:
        return None
    wanted = ((topic_id, index, leader_epoch, at, last_epoch, start, most),)
    asked = max_wait_ms, min_bytes, max_bytes, session_id, epoch, replica, broker_epoch, wanted, (), True
    return _new_ask(ReplicaAsk, asked)


def write_answer(correlation_id: int, answer: Answer) -> list[Part]:
    """A response as it goes out, its size first; what it tells of has to be `FEW`."""
    session_id, told = answer
    if len(told) == 1:
        topic_id, index, high_watermark, log_start_offset, records = told[0]
        head = _pack_one_answer(
            0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, -1, log_start_offset, 1, -1
        )
        length = len(records)
        head += encode_uvarint(length + 1)
        size = _ID_SIZE + len(head) + length + len(_ENDS)
        return [_HEAD.pack(size, correlation_id, 0) + head, records, _ENDS]
    topics = _by_topic(told)
    parts: list[Part] = []
    written = _ANSWER.pack(0, 0, session_id, len(topics) + 1)
    size = _ID_SIZE
    for named in topics:
        written += _TOPIC.pack(named[0][0], len(named) + 1)
        for _, index, high_watermark, log_start_offset, records in named:
            length = len(records)
            entry = _TOLD.pack(index, 0, high_watermark, -1, log_start_offset, 1, -1)
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


def read_answer(frame: memoryview, offset: int) -> Answer | None:
    """The response whose body starts at `offset`; None where it has any other form."""
    try:
        if frame[offset + _TOPICS_AT] == 2 and frame[offset + _PARTITIONS_AT] == 2:
            return _read_one_answer(frame, offset)
        _, error, session_id, topics = _unpack_answer(frame, offset)
        offset += _ANSWER_SIZE
        told: list[Told] = []
        while 1 < topics < _LONG:
            topics -= 1
            topic_id, partitions = _unpack_topic(frame, offset)
            offset += _TOPIC_SIZE
            while 1 < partitions < _LONG:
                partitions -= 1
                index, refusal, high_watermark, _, start, aborted, _ = _unpack_told(frame, offset)
                length, offset = read_uvarint(frame, offset + _TOLD_SIZE)
                end = offset + length - 1
                if refusal or aborted > 1 or not length or frame[end]:
                    return None
                told.append((topic_id, index, high_watermark, start, frame[offset:end]))
                offset = end + 1
            if partitions != 1 or frame[offset]:
                return None
            offset += 1
        if error or topics != 1 or frame[offset]:
            return None
    except (struct.error, IndexError, ProtocolError):
        return None
    return session_id, told


def _read_one_answer(frame: memoryview, offset: int) -> Answer | None:
    _, error, session_id, _, topic_id, _, index, refusal, high_watermark, _, start, aborted, _ = (
        _unpack_one_answer(frame, offset)
    )
    offset += _ONE_ANSWER_SIZE
    low, high = frame[offset], frame[offset + 1]
    if low >= _LONG > high:
        # A varint of two bytes, as batches of a record or a few have.
        length = low & 0x7F | high << 7
        offset += 2
    else:
        length, offset = read_uvarint(frame, offset)
    end = offset + length - 1
    if error or refusal or aborted > 1 or not length or frame[end:].tobytes() != _ENDS:
        return None
    return session_id, ((topic_id, index, high_watermark, start, frame[offset:end]),)


def _by_topic(named: Sequence[N]) -> Sequence[Sequence[N]]:
    """Partitions by their topics, in order."""
    if len(named) == 1:
        return (named,)
    return [list(of_one) for _, of_one in groupby(named, itemgetter(0))]


def ask_of(request: FetchRequest) -> ReplicaAsk:
    """The same, from a request in another form."""
    replica, broker_epoch = request.replica_id, -1
    if request.replica_state is not None:
        replica, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    return ReplicaAsk(
        *(request.max_wait_ms, request.min_bytes, request.max_bytes),
        *(request.session_id, request.session_epoch, replica, broker_epoch),
        [
            (
                *(TopicId(topic.topic_id), wanted.partition, wanted.current_leader_epoch),
                *(wanted.fetch_offset, wanted.last_fetched_epoch),
                *(wanted.log_start_offset, wanted.partition_max_bytes),
            )
            for topic in request.topics
            for wanted in topic.partitions
        ],
        [(TopicId(topic.topic_id), i) for topic in request.forgotten_topics_data for i in topic.partitions],
        is_usual=False,
    )


def _request_of(ask: ReplicaAsk) -> FetchRequest:
    """The inverse of `ask_of`."""
    max_wait_ms, min_bytes, max_bytes, session_id, epoch, replica, broker_epoch, wanted, forgotten, _ = ask
    topics = [
        FetchTopic(
            topic_id=named[0][0],
            partitions=[
                FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=at,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=start,
                    partition_max_bytes=most,
                )
                for _, index, leader_epoch, at, last_epoch, start, most in named
            ],
        )
        for named in _by_topic(wanted)
    ]
    gone = [
        ForgottenTopic(topic_id=topic_id, partitions=[index for _, index in named])
        for topic_id, named in groupby(forgotten, itemgetter(0))
    ]
    return FetchRequest(
        replica_id=replica,
        replica_state=ReplicaState(replica_id=replica, replica_epoch=broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=gone,
    )


class _ReplicaFetch(Api[Any, Any]):
    """See above."""

    __slots__ = ()

    def request_encoder(self, version: int) -> Encoder[Any]:
        encode = FETCH.request_encoder(version)
        is_newest = version == FETCH.max_version

        def write(ask: ReplicaAsk) -> list[Part]:
            if is_newest and not ask.forgotten and len(ask.wanted) <= FEW:
                return [write_ask(ask)]
            return encode(_request_of(ask))

        return write

    def request_decoder(self, version: int) -> Decoder[Any]:
        decode = FETCH.request_decoder(version)
        if version != FETCH.max_version:
            return decode

        def read(frame: memoryview, offset: int) -> ReplicaAsk | FetchRequest:
            return read_ask(frame, offset) or decode(frame, offset)

        return read

    def response_decoder(self, version: int) -> Decoder[Any]:
        decode = FETCH.response_decoder(version)
        if version != FETCH.max_version:
            return decode

        def read(frame: memoryview, offset: int) -> Answer | FetchResponse:
            return read_answer(frame, offset) or decode(frame, offset)

        return read


REPLICA_FETCH: Final = _ReplicaFetch.like(FETCH)
