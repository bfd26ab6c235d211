"""Batches with a right checksum that consumers cannot read, or that a broker must not store.

Each is as small as its fault allows. `unusual` are batches that look strange and that every consumer reads.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

import lz4.frame
import zstandard

from penstock.records.batch import CONTROL_BIT, NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader
from penstock.records.codecs import Codec, compress
from penstock.records.record import seal
from penstock.records.varint import encode_varint

COMPRESSED: Final = tuple(codec for codec in Codec if codec)
NOW_MS: Final = 1_700_000_000_000


def field(content: bytes | None, length: int | None = None) -> bytes:
    """A key, a value or a part of a header, with a wrong length if one is given."""
    if length is None:
        length = -1 if content is None else len(content)
    return encode_varint(length) + (content or b"")


def raw_record(
    offset_delta: int = 0,
    *,
    attributes: int = 0,
    timestamp_delta: int = 0,
    key: bytes = field(b"k"),
    value: bytes = field(b"value"),
    headers: bytes = b"\x00",
    longer: int = 0,
    offset: bytes | None = None,
) -> bytes:
    """A record of encoded fields; `longer` is added to its length."""
    offset = encode_varint(offset_delta) if offset is None else offset
    body = bytes((attributes,)) + encode_varint(timestamp_delta) + offset + key + value + headers
    return encode_varint(len(body) + longer) + body


def batch_with(body: bytes, count: int = 1, **header: Any) -> bytes:
    """A batch with a right header, except for the given fields, and a right checksum."""
    fields = {
        "base_offset": 0,
        "batch_length": 0,
        "leader_epoch": NO_EPOCH,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_EPOCH,
        "base_sequence": NO_SEQUENCE,
        "record_count": count,
    }
    return seal(BatchHeader(**{**fields, **header}), body)


def plain(*records: bytes, count: int | None = None, **header: Any) -> bytes:
    return batch_with(b"".join(records), len(records) if count is None else count, **header)


def packed(codec: Codec, *records: bytes, count: int | None = None, **header: Any) -> bytes:
    body = compress(codec, b"".join(records))
    return batch_with(body, len(records) if count is None else count, **{"attributes": int(codec), **header})


def one_header(key: bytes, value: bytes, count: int = 1) -> bytes:
    return encode_varint(count) + key + value


#: what is wrong with one record, whatever the codec
FAULTY_RECORDS: Final[dict[str, Sequence[bytes]]] = {
    "a record longer than its fields": [raw_record(longer=1, headers=b"\x00\x00"), raw_record(1)],
    "a record shorter than its fields": [raw_record(longer=-1), raw_record(1)],
    "a record with bytes behind its headers": [raw_record(headers=b"\x00\x00")],
    "a record that ends behind the batch": [raw_record(longer=100)],
    "a record of negative length": [encode_varint(-1) + raw_record()],
    "a record of length 0": [b"\x00"],
    "a key that ends behind the record": [raw_record(key=field(b"k", 100))],
    "a key that ends behind the batch": [raw_record(key=field(b"k", 1 << 30))],
    "a value that ends behind the record": [raw_record(value=field(b"value", 7)), raw_record(1)],
    "a value that ends behind the batch": [raw_record(value=field(b"value", 1 << 30))],
    "a value shorter than its record": [raw_record(value=field(b"value", 3))],
    "no count of headers": [raw_record(headers=b"")],
    "a negative count of headers": [raw_record(headers=encode_varint(-1))],
    "more headers than bytes": [raw_record(headers=encode_varint(1 << 20))],
    "a header that is not there": [raw_record(headers=encode_varint(1))],
    "a header without a key": [raw_record(headers=one_header(field(None), field(b"v")))],
    "a header key that ends behind the record": [
        raw_record(headers=one_header(field(b"h", 50), field(b"v")))
    ],
    "a header value that ends behind the record": [
        raw_record(headers=one_header(field(b"h"), field(b"v", 50)))
    ],
    "a key length of six bytes": [raw_record(key=b"\x82\x80\x80\x80\x80\x00k")],
    "an offset delta of six bytes": [raw_record(offset=b"\x80\x80\x80\x80\x80\x00")],
    "a record length of six bytes": [b"\x80\x80\x80\x80\x80\x00"],
    "random bytes": [bytes((i * 37 + 11) % 251 for i in range(200))],
    "zeros": [bytes(100)],
    "ones": [b"\xff" * 100],
}
#: what is wrong with how many records there are
FAULTY_COUNTS: Final[dict[str, tuple[int, Sequence[bytes]]]] = {
    "fewer records than the header says": (3, [raw_record(), raw_record(1)]),
    "more records than the header says": (1, [raw_record(), raw_record(1)]),
    "no record where the header has one": (1, []),
    "bytes behind the last record": (1, [raw_record(), b"\x00"]),
}
#: offset deltas that Kafka accepts in uncompressed batches, where they give one offset to several records
FAULTY_DELTAS: Final[dict[str, Sequence[int]]] = {
    "offset deltas with gaps": (0, 2, 4),
    "offset deltas that repeat": (0, 0, 1),
    "offset deltas in no order": (2, 1, 0),
    "offset deltas that are negative": (-1, 0, 1),
}


def _bodies_of_no_frame() -> dict[str, bytes]:
    """Compressed batches whose payload is not what the codec bits say."""
    records = raw_record() + raw_record(1)
    cases = {}
    for codec in COMPRESSED:
        attributes = int(codec)
        body = compress(codec, records)
        cases[f"{codec.label}: plain records"] = batch_with(records, 2, attributes=attributes)
        other = Codec.GZIP if codec is Codec.ZSTD else Codec.ZSTD
        cases[f"{codec.label}: a frame of {other.label}"] = batch_with(
            compress(other, records), 2, attributes=attributes
        )
        cases[f"{codec.label}: no bytes"] = batch_with(b"", 2, attributes=attributes)
        cases[f"{codec.label}: a frame that is cut"] = batch_with(body[:-3], 2, attributes=attributes)
        damaged = bytearray(body)
        damaged[len(body) // 2] ^= 0xFF
        cases[f"{codec.label}: a damaged frame"] = batch_with(bytes(damaged), 2, attributes=attributes)
        cases[f"none: a frame of {codec.label}"] = batch_with(body, 2)
    many = b"".join(raw_record(i, value=field(bytes(100))) for i in range(1000))
    linked = lz4.frame.compress(many, block_linked=True)
    cases["lz4: linked blocks"] = batch_with(linked, 1000, attributes=int(Codec.LZ4))
    return cases


def poison() -> dict[str, bytes]:
    """Every poison batch by what is wrong with it."""
    cases: dict[str, bytes] = {}
    for name, records in FAULTY_RECORDS.items():
        cases[f"none: {name}"] = plain(*records)
        for codec in COMPRESSED:
            cases[f"{codec.label}: {name}"] = packed(codec, *records)
    for name, (count, records) in FAULTY_COUNTS.items():
        cases[f"none: {name}"] = plain(*records, count=count)
        for codec in COMPRESSED:
            cases[f"{codec.label}: {name}"] = packed(codec, *records, count=count)
    for name, deltas in FAULTY_DELTAS.items():
        cases[f"none: {name}"] = plain(*map(raw_record, deltas))
        for codec in COMPRESSED:
            cases[f"{codec.label}: {name}"] = packed(codec, *map(raw_record, deltas))
    return {**cases, **_bodies_of_no_frame(), **_headers()}


def accepted_by_kafka() -> set[str]:
    """What Apache Kafka 4.3.1 stores nevertheless; its own consumers fail on most of it."""
    compressed = {codec.label for codec in COMPRESSED}
    unread_lengths = {"a record shorter than its fields", "a record that ends behind the batch"}
    return (
        {f"none: {name}" for name in FAULTY_DELTAS}
        | {f"{codec}: {name}" for codec in compressed for name in unread_lengths}
        # The bit is taken off again, where the timestamps are within bounds.
        | {"header: LogAppendTime"}
    )


def _headers() -> dict[str, bytes]:
    """Right records under a header that a client must not send."""
    two = (raw_record(), raw_record(1))
    return {
        "header: a control batch": plain(*two, attributes=CONTROL_BIT),
        "header: LogAppendTime": plain(*two, attributes=0x08),
        **{f"header: codec {codec}": plain(*two, attributes=codec) for codec in (5, 6, 7)},
        "header: last offset delta above the count": plain(*two, last_offset_delta=2),
        "header: last offset delta below the count": plain(*two, last_offset_delta=0),
        "header: last offset delta negative": plain(*two, last_offset_delta=-1),
        "header: no records, but a count": plain(count=2),
        "header: records, but no count": plain(*two, count=0),
        "header: a negative count": plain(*two, count=-1),
        "header: a base offset": plain(*two, base_offset=5),
        "header: a producer id without sequence": plain(*two, producer_id=7, producer_epoch=0),
        "header: magic 0": legacy(0),
        "header: magic 1": legacy(1),
        "header: magic 3": _with_magic(plain(*two), 3),
    }


def _with_magic(batch: bytes, magic: int) -> bytes:
    changed = bytearray(batch)
    changed[16] = magic
    return bytes(changed)


def legacy(magic: int) -> bytes:
    """A message set of one message in the format before record batches."""
    timestamp = struct.pack(">q", NOW_MS) if magic else b""
    body = bytes((magic, 0)) + timestamp + struct.pack(">i1si5s", 1, b"k", 5, b"value")
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def unusual() -> dict[str, bytes]:
    """Batches that are odd, but that every consumer reads."""
    many = [raw_record(i, timestamp_delta=i * 7 - 300, value=field(b"x" * (i % 90))) for i in range(300)]
    cases: dict[str, Callable[[], Sequence[bytes]]] = {
        "nulls": lambda: [raw_record(key=field(None), value=field(None))],
        "empty key and value": lambda: [raw_record(key=field(b""), value=field(b""))],
        "record attributes": lambda: [raw_record(attributes=0xFF)],
        "headers": lambda: [
            raw_record(headers=b"\x04" + field(b"a") + field(b"1") + field(b"") + field(None))
        ],
        "an offset delta in two bytes": lambda: [raw_record(offset=b"\x80\x00")],
        "a key length in five bytes": lambda: [raw_record(key=b"\x82\x80\x80\x80\x00k")],
        "timestamps in no order": lambda: [
            raw_record(i, timestamp_delta=delta) for i, delta in enumerate((5, -70_000, 1 << 20, 0))
        ],
        "many records of many sizes": lambda: many,
        "many records of one size": lambda: [raw_record(i) for i in range(300)],
    }
    found = {}
    for name, records in cases.items():
        found[f"none: {name}"] = plain(*records())
        for codec in COMPRESSED:
            found[f"{codec.label}: {name}"] = packed(codec, *records())
    big = b"".join(raw_record(i) for i in range(300))
    zstd = zstandard.ZstdCompressor(write_content_size=False).compress(big)
    found["zstd: no declared size"] = batch_with(zstd, 300, attributes=int(Codec.ZSTD))
    found["gzip: two members"] = batch_with(
        gzip.compress(big[:1000]) + gzip.compress(big[1000:]), 300, attributes=int(Codec.GZIP)
    )
    return found
