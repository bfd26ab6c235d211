"""The columns of Avro schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.values.types import json_field

__all__ = ["avro_columns"]

_DEPTH_MAX: Final = 30
_INSTANT: Final = pa.timestamp("us", "UTC")
_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": _INSTANT,
    "timestamp-micros": _INSTANT,
    # Times without a zone: fastavro's are naive, and they fit as times of UTC.
    "local-timestamp-millis": _INSTANT,
    "local-timestamp-micros": _INSTANT,
    # Delta has no times without a day.
    "time-millis": pa.string(),
    "time-micros": pa.string(),
    "uuid": pa.string(),
}
_DECIMAL_DIGITS_MAX: Final = 38


def avro_columns(schema: Any, named: Mapping[str, Any]) -> Any | None:
    """The structure of a record; None if the schema is of another type. `schema` is parsed by fastavro."""
    return _columns(schema, named, ())


def _columns(schema: Any, named: Mapping[str, Any], around: tuple[str, ...]) -> Any | None:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        return None
    within = (*around, schema["name"])
    return pa.struct([_field(each["name"], each["type"], named, within) for each in schema["fields"]])


def _field(name: str, schema: Any, named: Mapping[str, Any], around: tuple[str, ...]) -> Any:
    """A column; JSON text for what has no single type, or contains itself."""
    kind = _type(schema, named, around)
    return json_field(name) if kind is None else pa.field(name, kind)


def _type(schema: Any, named: Mapping[str, Any], around: tuple[str, ...]) -> Any | None:
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        return _type(branches[0], named, around) if len(branches) == 1 else None
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema in around or schema not in named:
            return None
        return _type(named[schema], named, around)
    if len(around) > _DEPTH_MAX:
        return None
    kind = schema["type"]
    if kind in ("record", "error"):
        columns = None if schema["name"] in around else _columns(schema, named, around)
        # Delta has no structure without fields.
        return columns if columns is not None and len(columns) else None
    if kind == "array":
        element = _type(schema["items"], named, around)
        return None if element is None else pa.list_(element)
    if kind == "map":
        value = _type(schema["values"], named, around)
        return None if value is None else pa.map_(pa.string(), value)
    if kind == "enum":
        return pa.string()
    return _logical(schema, named, around)


def _logical(schema: Any, named: Mapping[str, Any], around: tuple[str, ...]) -> Any | None:
    logical = schema.get("logicalType")
    if logical == "decimal":
        digits, scale = schema["precision"], schema.get("scale", 0)
        return pa.decimal128(digits, scale) if digits <= _DECIMAL_DIGITS_MAX else None
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    return pa.binary() if schema["type"] == "fixed" else _type(schema["type"], named, around)
