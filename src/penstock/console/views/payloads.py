"""Bytes of messages as text that a page can show without loss or danger.

The server renders JSON, because a browser's numbers lose digits of an int64. Control characters and the
characters that change the direction of text are made visible. Pages insert all of it as text, never as
markup.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.console.views.json_text import is_json, pretty_json
from penstock.console.views.unpacking import Oversized
from penstock.model.visible import visible
from penstock.records.record import Record
from penstock.registry.prefix import schema_id

__all__ = [
    "DETAIL_MAX",
    "FORMATS",
    "PREVIEW_MAX",
    "Decoded",
    "Decoder",
    "exported",
    "message_view",
    "schema_id",
    "show",
    "visible",
]

#: characters of a value in a list of messages, and on the page of one message
PREVIEW_MAX: Final = 2_000
DETAIL_MAX: Final = 400_000
#: larger JSON is not formatted, and larger values are not decoded by their schema
_FORMAT_MAX: Final = 4 << 20
_DECODE_MAX: Final = 1 << 20
_HEX_MAX: Final = 4_096
_SCHEMA_ID_MAX: Final = 1_000_000
FORMATS: Final = ("auto", "json", "text", "bytes")
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_TIMESTAMP_MAX: Final = 253_402_300_799_999


class Decoded(NamedTuple):
    """Bytes decoded by a schema: its name, JSON, and the schema's number in the registry."""

    schema: str
    json: bytes
    number: int | None = None


#: decodes bytes by a schema; None if they have none
Decoder: TypeAlias = Callable[[bytes], Decoded | None]


def show(
    data: bytes | None, limit: int = PREVIEW_MAX, wanted: str = "auto", decode: Decoder | None = None
) -> dict[str, Any]:
    """`kind`, `text`, `size` in bytes, `truncated`; `kind` is null, empty, json, text, bytes or schema."""
    if data is None:
        return {"kind": "null", "text": "null", "size": 0, "truncated": False}
    if not data:
        return {"kind": "empty", "text": "", "size": 0, "truncated": False}
    if wanted == "auto" and decode is not None and len(data) <= _DECODE_MAX:
        decoded = decode(data)
        if decoded is not None:
            text, truncated = pretty_json(decoded.json.decode(), limit)
            found = _cut("schema", visible(text), len(data), limit, truncated)
            return {**found, "schema": decoded.schema, "schema_id": decoded.number}
    if wanted in ("auto", "json") and _is_json(data):
        text, truncated = pretty_json(data.decode(), limit)
        return _cut("json", visible(text), len(data), limit, truncated)
    if wanted != "bytes":
        plain = _as_text(data)
        if plain is not None or wanted == "text":
            shown = plain if plain is not None else data.decode(errors="replace")
            return _cut("text", visible(shown[: limit + 1]), len(data), limit, len(shown) > limit)
    shown = hex_dump(data[: min(_HEX_MAX, limit)])
    found = {"kind": "bytes", "text": shown, "size": len(data), "truncated": len(data) > min(_HEX_MAX, limit)}
    number = schema_id(data)
    # Any bytes may begin with a zero: registries count from 1 on.
    return {**found, "schema_id": number} if number is not None and 0 < number < _SCHEMA_ID_MAX else found


def _cut(kind: str, text: str, size: int, limit: int, truncated: bool = False) -> dict[str, Any]:
    return {"kind": kind, "text": text[:limit], "size": size, "truncated": truncated or len(text) > limit}


def _is_json(data: bytes) -> bool:
    return len(data) <= _FORMAT_MAX and data.lstrip()[:1] in b'{["-0123456789tfn' and is_json(data)


def _as_text(data: bytes) -> str | None:
    """The text of UTF-8; None for bytes that are hardly meant as text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    sample = text[:1000]
    strange = sum(ord(c) < 0x20 and c not in "\t\n\r" for c in sample)
    return None if strange * 10 > len(sample) else text


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: position, hexadecimal digits, ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        digits = " ".join(f"{byte:02x}" for byte in row)
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:08x}  {digits:<47}  {text}")
    return "\n".join(lines)


def message_view(
    partition: int,
    record: Record,
    oversized: Oversized | None = None,
    *,
    limit: int = PREVIEW_MAX,
    wanted: str = "auto",
    decode: Decoder | None = None,
) -> dict[str, Any]:
    """A message for a page. Offsets are strings: a browser's numbers end at 2^53.

    With `oversized`, the record stands for a batch that is too large to show.
    """
    trace = next((m for k, v in record.headers if k == "traceparent" and (m := _trace(v))), None)
    return {
        "partition": partition,
        "offset": str(record.offset),
        "timestamp": iso(record.timestamp),
        "timestamp_ms": str(record.timestamp),
        "key": show(record.key, limit, wanted, decode),
        "value": show(record.value, limit, wanted, decode),
        "tombstone": record.value is None and record.key is not None,
        "too_large": None if oversized is None else _sizes(oversized),
        "headers": [{"name": visible(name), "value": show(value, limit)} for name, value in record.headers],
        "trace_id": trace,
    }


def _sizes(batch: Oversized) -> dict[str, Any]:
    return {
        "records": batch.records,
        "last_offset": str(batch.last_offset),
        "stored": batch.stored,
        "size": batch.size,
        "is_exact": batch.is_exact,
    }


def _trace(value: bytes | None) -> str | None:
    found = _TRACEPARENT.fullmatch(value or b"")
    return found[1].decode() if found else None


def iso(milliseconds: int) -> str | None:
    """A time in ISO 8601 with milliseconds; None for one that is missing or out of range."""
    if not 0 <= milliseconds <= _TIMESTAMP_MAX:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def exported(partition: int, record: Record, oversized: Oversized | None = None) -> dict[str, Any]:
    """A message for a download, without loss: text as it is, other bytes in base64."""
    if oversized is not None:
        return {"partition": partition, "offset": record.offset, "too_large": _sizes(oversized)}

    def part(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(data).decode()}

    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": part(record.key),
        "value": part(record.value),
        "headers": [[name, part(value)] for name, value in record.headers],
    }
