"""Decodes Protobuf payloads by their schema into values for JSON, or into those of Python.

The library `protobuf` reads the wire format. It cannot read schemas, which a registry has as text: that takes
`protoc`, so `protobuf_schema` parses them. Each type becomes a descriptor of its own in which nested messages
are bytes. Why: the library reserves memory for all fields of a message, so two bytes of a payload could
become kilobytes for each nested message. So only one level is read at a time, and its values are counted
before they become objects.

Fields that the schema does not have are kept under their number, as bytes in base64. int64 values stay
numbers: pages get JSON as text, so that no digit is lost.
"""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from penstock.registry.protobuf_schema import (
    SCALARS,
    WELL_KNOWN,
    Field,
    MessageType,
    ProtoFile,
    parse_proto,
)

__all__ = ["ProtobufSchema"]

_DEPTH_MAX: Final = 60
#: of one payload, nested ones included
_FIELDS_MAX: Final = 50_000
#: of a message with groups, which the library reads with the message; a group has at least two bytes
_GROUPS_BYTES_MAX: Final = 2 * _FIELDS_MAX
#: wire types
_FIXED64, _BYTES, _GROUP, _FIXED32 = 1, 2, 3, 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
#: of scalars other than whole numbers
_DEFAULTS: Final[dict[str, Any]] = {"string": "", "bytes": b"", "bool": False, "double": 0.0, "float": 0.0}
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
        self._classes = _Classes(self._file)

    def decode(self, data: bytes) -> tuple[str, Any]:
        """The name of the message and its value, of a payload that begins with message indexes.

        ValueError if the bytes do not fit.
        """
        message, position = self.indexed(data)
        return message.name, _Decoding(self._file, self._classes).message(message, data[position:], 0)

    def decode_plain(self, data: bytes) -> Any:
        """The value alone, with bytes and times of Python; fields without presence have their defaults.

        Fields that the schema does not have are left out. ValueError if the bytes do not fit.
        """
        message, position = self.indexed(data)
        return _PlainDecoding(self._file, self._classes).message(message, data[position:], 0)

    @property
    def file(self) -> ProtoFile:
        """The types, with those of imported files."""
        return self._file

    def indexed(self, data: bytes) -> tuple[MessageType, int]:
        """The message that the indexes name, and where it begins; a single 0 stands for the first one."""
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


class _Classes:
    """The library's class of each type, made on first use. Enums are int32, nested messages bytes."""

    def __init__(self, file: ProtoFile) -> None:
        self._file = file
        self._made: dict[str, type[Message]] = {}

    def __getitem__(self, message: MessageType) -> type[Message]:
        found = self._made.get(message.name)
        if found is None:
            found = self._made[message.name] = self._make(message)
        return found

    def _make(self, message: MessageType) -> type[Message]:
        # With the rules of proto2, a field that the payload has is shown, even if it has its default.
        file = FileDescriptorProto(name="message", syntax="proto2")
        self._describe(file.message_type.add(name="M"), message, ".M")
        pool = DescriptorPool()
        try:
            pool.Add(file)
        except TypeError as error:
            raise ValueError(f"{message.name} has invalid fields: {error}") from error
        return GetMessageClass(pool.FindMessageTypeByName("M"))

    def _describe(self, to: DescriptorProto, message: MessageType, path: str) -> None:
        kinds = FieldDescriptorProto
        for number, field in message.fields.items():
            several = field.repeated or field.key_kind is not None
            label = kinds.LABEL_REPEATED if several else kinds.LABEL_OPTIONAL
            made = to.field.add(name=f"f{number}", number=number, label=label, type=self._type(field))
            if field.is_group:
                made.type_name = f"{path}.G{number}"
                nested = to.nested_type.add(name=f"G{number}")
                self._describe(nested, self._file.messages[field.kind], made.type_name)

    def _type(self, field: Field) -> FieldDescriptorProto.Type.ValueType:
        if field.is_group:
            return FieldDescriptorProto.TYPE_GROUP
        if field.key_kind is None and field.kind in self._file.enums:
            return FieldDescriptorProto.TYPE_INT32
        # The text of strings is decoded here: for proto2, the library does not check it.
        if field.key_kind is None and field.kind in SCALARS and field.kind != "string":
            return FieldDescriptorProto.Type.Value(f"TYPE_{field.kind.upper()}")
        return FieldDescriptorProto.TYPE_BYTES


class _Decoding:
    """One payload. Counts its fields: nested messages of a few bytes each become large values."""

    def __init__(self, file: ProtoFile, classes: _Classes) -> None:
        self._file = file
        self._classes = classes
        self._fields_left = _FIELDS_MAX

    def _count(self, fields: int) -> None:
        self._fields_left -= fields
        if self._fields_left < 0:
            raise ValueError(f"the payload has more than {_FIELDS_MAX} fields")

    def message(self, message: MessageType, data: bytes, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError("messages are nested too deep")
        if len(data) > _GROUPS_BYTES_MAX and any(each.is_group for each in message.fields.values()):
            raise ValueError(f"a message with groups has more than {_GROUPS_BYTES_MAX} bytes")
        try:
            found = self._classes[message].FromString(data)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        return self._fields(message, found, depth)

    def _fields(self, message: MessageType, found: Message, depth: int) -> Any:
        value: dict[str, Any] = {}
        for descriptor, item in found.ListFields():
            field = message.fields[descriptor.number]
            if field.key_kind is not None:
                self._count(len(item))
                value[field.name] = dict(self._entry(field, each, depth) for each in item)
            elif field.repeated:
                self._count(len(item))
                value[field.name] = [self._single(field, each, depth) for each in item]
            else:
                self._count(1)
                value[field.name] = self._single(field, item, depth)
        return self._completed(message, value, found)

    def _completed(self, message: MessageType, value: dict[str, Any], found: Message) -> Any:
        value.update(self._unknown(UnknownFieldSet(found)))
        return _well_known(message.name, value)

    def _unknown(self, fields: Any) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for each in fields:
            self._count(1)
            nested = each.wire_type == _GROUP
            value[f"#{each.field_number}"] = (
                self._unknown(each.data) if nested else b64encode(_raw(each.wire_type, each.data)).decode()
            )
        return value

    def _entry(self, field: Field, data: bytes, depth: int) -> tuple[str, Any]:
        assert field.key_kind is not None
        entry = MessageType(
            f"map<{field.key_kind},{field.kind}>",
            {1: Field("key", 1, field.key_kind), 2: Field("value", 2, field.kind)},
        )
        found = self.message(entry, data, depth + 1)
        key = found.get("key", "")
        return str(key).lower() if isinstance(key, bool) else str(key), found.get("value")

    def _single(self, field: Field, value: Any, depth: int) -> Any:
        if field.is_group:
            return self._fields(self._file.messages[field.kind], value, depth + 1)
        if field.kind in self._file.messages:
            return self.message(self._file.messages[field.kind], value, depth + 1)
        if field.kind in self._file.enums:
            return self._file.enums[field.kind].values.get(value, value)
        if field.kind == "string":
            return value.decode()
        return self._scalar(field, value)

    def _scalar(self, field: Field, value: Any) -> Any:
        return b64encode(value).decode() if field.kind == "bytes" else _number(value)


class _PlainDecoding(_Decoding):
    """One payload, into values of Python."""

    def _scalar(self, field: Field, value: Any) -> Any:
        return value

    def _completed(self, message: MessageType, value: dict[str, Any], found: Message) -> Any:
        if message.name in _WRAPPERS or message.name == _TIMESTAMP:
            return _plain_well_known(message.name, value)
        for field in message.fields.values():
            if field.name not in value and not field.has_presence:
                default = self._default(field)
                if default is not None:
                    value[field.name] = default
        return _well_known(message.name, value)

    def _default(self, field: Field) -> Any:
        """None for a message, which has presence whatever its label."""
        if field.key_kind is not None:
            return {}
        if field.repeated:
            return []
        if field.kind in self._file.enums:
            return self._file.enums[field.kind].values.get(0, 0)
        return _DEFAULTS.get(field.kind, 0) if field.kind in SCALARS else None


def _plain_well_known(name: str, value: dict[str, Any]) -> Any:
    """A wrapped value, which is its default if it is left out, and a time."""
    if name in _WRAPPERS:
        kind = name.removeprefix("google.protobuf.").removesuffix("Value").lower()
        return value.get("value", _DEFAULTS.get(kind, 0))
    try:
        moment = _EPOCH + timedelta(seconds=value.get("seconds", 0))
    except OverflowError as error:
        raise ValueError(f"{value.get('seconds')} s is no time") from error
    return moment + timedelta(microseconds=value.get("nanos", 0) // 1000)


def _raw(wire: int, value: Any) -> bytes:
    """The bytes of an unknown value, of which the library has the number."""
    if wire == _BYTES:
        return bytes(value)
    if wire in (_FIXED32, _FIXED64):
        return int(value).to_bytes(4 if wire == _FIXED32 else 8, "little")
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


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
