"""Decodes Protobuf payloads by their schema into values for JSON.

Fields that the schema does not have are kept under their number, as bytes in base64. int64 values stay
numbers: pages get JSON as text, so that no digit is lost.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.console.views.protobuf_schema import (
    SCALARS,
    WELL_KNOWN,
    Field,
    MessageType,
    parse_proto,
)

__all__ = ["ProtobufSchema"]

_DEPTH_MAX: Final = 60
_FIELDS_MAX: Final = 200_000
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED: Final = {
    "double": "<d",
    "fixed64": "<Q",
    "sfixed64": "<q",
    "float": "<f",
    "fixed32": "<I",
    "sfixed32": "<i",
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufSchema:
    """A schema and the files that it imports. Raises InvalidSchema if one of them is not valid."""

    def __init__(self, text: str, imports: list[str]) -> None:
        self._file = parse_proto(text)
        others = [parse_proto(each) for each in (*imports, WELL_KNOWN)]
        self._file.resolve(others)

    def decode(self, data: bytes) -> tuple[str, Any]:
        """The name of the message and its value, of a payload that begins with message indexes.

        ValueError if the bytes do not fit.
        """
        message, position = self._indexed(data)
        return message.name, self._message(message, data, position, len(data), 0)

    def _indexed(self, data: bytes) -> tuple[MessageType, int]:
        """The message that the indexes name; a single 0 stands for the first one."""
        count, position = _zigzag(data, 0)
        if count < 0:
            raise ValueError(f"a path of {count} indexes names no message")
        path = [0]
        if count:
            path = []
            for _ in range(count):
                index, position = _zigzag(data, position)
                path.append(index)
        within = self._file.top
        for index in path:
            if not 0 <= index < len(within):
                raise ValueError(f"the schema has no message {path}")
            message, within = within[index], within[index].nested
        return message, position

    def _message(self, message: MessageType, data: bytes, position: int, end: int, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError("messages are nested too deep")
        value: dict[str, Any] = {}
        for number, wire, start, stop in _fields(data, position, end):
            field = message.fields.get(number)
            if field is None:
                value[f"#{number}"] = b64encode(data[start:stop]).decode()
                continue
            self._add(value, field, wire, data[start:stop], depth)
        return _well_known(message.name, value)

    def _add(self, value: dict[str, Any], field: Field, wire: int, data: bytes, depth: int) -> None:
        if field.key_kind is not None:
            key, item = self._entry(field, data, depth)
            value.setdefault(field.name, {})[key] = item
        elif field.repeated:
            found = value.setdefault(field.name, [])
            if wire == _BYTES and self._is_packable(field.kind):
                found.extend(self._packed(field.kind, data))
            else:
                found.append(self._single(field.kind, data, depth))
        else:
            value[field.name] = self._single(field.kind, data, depth)

    def _entry(self, field: Field, data: bytes, depth: int) -> tuple[str, Any]:
        assert field.key_kind is not None
        entry = MessageType("", {1: Field("key", 1, field.key_kind), 2: Field("value", 2, field.kind)})
        found = self._message(entry, data, 0, len(data), depth + 1)
        key = found.get("key", "")
        return str(key).lower() if isinstance(key, bool) else str(key), found.get("value")

    def _is_packable(self, kind: str) -> bool:
        return kind in self._file.enums or (kind in SCALARS and kind not in ("string", "bytes"))

    def _packed(self, kind: str, data: bytes) -> Iterator[Any]:
        position = 0
        while position < len(data):
            size = struct.calcsize(_FIXED[kind]) if kind in _FIXED else _varint(data, position)[1] - position
            yield self._single(kind, data[position : position + size], 0)
            position += size

    def _single(self, kind: str, data: bytes, depth: int) -> Any:
        if kind in self._file.messages:
            return self._message(self._file.messages[kind], data, 0, len(data), depth + 1)
        if kind == "string":
            return data.decode()
        if kind == "bytes":
            return b64encode(data).decode()
        if kind in _FIXED:
            return _number(struct.unpack(_FIXED[kind], data)[0])
        raw, end = _varint(data, 0)
        if end != len(data):
            raise ValueError(f"bytes are left behind a {kind}")
        if kind in self._file.enums:
            return self._file.enums[kind].values.get(_signed(raw), _signed(raw))
        return _scalar(kind, raw)


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, start and end of the value of each field."""
    for _ in range(_FIELDS_MAX):
        if position == end:
            return
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _GROUP:
            stop, following = _group_end(data, position, end, number, 0)
            yield number, wire, position, stop
            position = following
            continue
        start, stop = _value(data, position, wire)
        if stop > end or number == 0:
            raise ValueError(f"field {number} does not fit")
        yield number, wire, start, stop
        position = stop
    raise ValueError("too many fields")


def _value(data: bytes, position: int, wire: int) -> tuple[int, int]:
    """Start and end of a value that is no group."""
    if wire == _VARINT:
        return position, _varint(data, position)[1]
    if wire == _FIXED64:
        return position, position + 8
    if wire == _FIXED32:
        return position, position + 4
    if wire == _BYTES:
        size, start = _varint(data, position)
        return start, start + size
    raise ValueError(f"unknown wire type {wire}")


def _group_end(data: bytes, position: int, end: int, number: int, depth: int) -> tuple[int, int]:
    """The end of the content of a group, and the position behind its end tag."""
    if depth > _DEPTH_MAX:
        raise ValueError("groups are nested too deep")
    while position < end:
        before = position
        tag, position = _varint(data, position)
        if tag & 7 == _GROUP_END:
            if tag >> 3 != number:
                raise ValueError("the end of another group")
            return before, position
        if tag & 7 == _GROUP:
            _, position = _group_end(data, position, end, tag >> 3, depth + 1)
        else:
            _, position = _value(data, position, tag & 7)
    raise ValueError("a group has no end")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number is cut off or too long")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    raw, position = _varint(data, position)
    return (raw >> 1) ^ -(raw & 1), position


def _signed(raw: int) -> int:
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _scalar(kind: str, raw: int) -> Any:
    if kind == "bool":
        return raw != 0
    if kind in ("sint32", "sint64"):
        return (raw >> 1) ^ -(raw & 1)
    if kind == "uint32":
        return raw & 0xFFFFFFFF
    return raw if kind == "uint64" else _signed(raw)


def _number(value: float) -> float | str:
    """JSON has no infinity and no NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _well_known(name: str, value: dict[str, Any]) -> Any:
    """Times, durations and wrapped values as people read them; others as they are."""
    if name in _WRAPPERS:
        return value.get("value")
    if name not in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return value
    seconds, nanos = value.get("seconds", 0), value.get("nanos", 0)
    if name.endswith("Duration"):
        return f"{seconds}.{nanos:09d}".rstrip("0").rstrip(".") + "s" if seconds >= 0 <= nanos else value
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return value
    fraction = f".{nanos:09d}".rstrip("0") if 0 < nanos < 1_000_000_000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
