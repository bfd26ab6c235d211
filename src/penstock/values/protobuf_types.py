"""The columns of Protobuf messages."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.registry.protobuf_schema import Field, MessageType, ProtoFile
from penstock.values.types import json_field

__all__ = ["protobuf_columns"]

_INT64: Final = pa.int64()
_SCALARS: Final = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int32": pa.int32(),
    "sint32": pa.int32(),
    "sfixed32": pa.int32(),
    "uint32": _INT64,
    "fixed32": _INT64,
    "int64": _INT64,
    "sint64": _INT64,
    "sfixed64": _INT64,
    # Values of 2 ** 63 and more do not fit.
    "uint64": _INT64,
    "fixed64": _INT64,
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_PREFIX: Final = "google.protobuf."
_WELL_KNOWN: Final = {
    "Timestamp": pa.timestamp("us", "UTC"),
    "Duration": pa.string(),
    "DoubleValue": pa.float64(),
    "FloatValue": pa.float32(),
    "Int64Value": _INT64,
    "UInt64Value": _INT64,
    "Int32Value": pa.int32(),
    "UInt32Value": _INT64,
    "BoolValue": pa.bool_(),
    "StringValue": pa.string(),
    "BytesValue": pa.binary(),
}
#: structures of any JSON
_ANY: Final = ("Struct", "Value", "ListValue", "Any")


def protobuf_columns(message: MessageType, file: ProtoFile) -> Any:
    """The structure of a message."""
    return _columns(message, file, ())


def _columns(message: MessageType, file: ProtoFile, around: tuple[str, ...]) -> Any:
    within = (*around, message.name)
    return pa.struct([_field(each, file, within) for each in message.fields.values()])


def _field(field: Field, file: ProtoFile, around: tuple[str, ...]) -> Any:
    kind = _type(field.kind, file, around)
    if kind is None:
        return json_field(field.name)
    if field.key_kind is not None:
        kind = pa.map_(pa.string(), kind)
    elif field.repeated:
        kind = pa.list_(kind)
    return pa.field(field.name, kind)


def _type(kind: str, file: ProtoFile, around: tuple[str, ...]) -> Any | None:
    """None for a message that contains itself, and for any JSON."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    name = kind.removeprefix(_PREFIX)
    if kind.startswith(_PREFIX) and name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if kind in file.enums:
        return pa.string()
    if kind in around or (kind.startswith(_PREFIX) and name in _ANY):
        return None
    columns = _columns(file.messages[kind], file, around)
    # Delta has no structure without fields.
    return columns if len(columns) else None
