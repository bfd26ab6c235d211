"""The columns of JSON Schemas. References within the document are followed; other documents are not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from penstock.model.errors import PenstockError
from penstock.values.types import json_field

__all__ = ["NoColumns", "json_schema_columns"]

_DEPTH_MAX: Final = 30
_SCALARS: Final = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: Final = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}


class NoColumns(PenstockError, ValueError):
    """A schema that is not of objects with properties."""


def json_schema_columns(schema: Any) -> Any:
    """The structure of the objects of a schema; NoColumns if it has none."""
    found = _type(schema, schema, 0) if isinstance(schema, Mapping) else None
    if found is None or not pa.types.is_struct(found):
        raise NoColumns("the JSON Schema is not of objects with properties")
    return found


def _type(schema: Any, root: Mapping[str, Any], depth: int) -> Any | None:
    """None for what has no single type: JSON text."""
    schema = _followed(schema, root)
    if schema is None or depth > _DEPTH_MAX:
        return None
    branches = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(branches, list):
        some = [each for each in branches if each != {"type": "null"}]
        return _type(some[0], root, depth + 1) if len(some) == 1 else None
    kinds = schema.get("type", "object" if "properties" in schema else None)
    named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
    if len(named) != 1:
        return None
    if named[0] == "object":
        return _object(schema, root, depth)
    if named[0] == "array":
        element = _type(schema.get("items"), root, depth + 1)
        return None if element is None else pa.list_(element)
    if named[0] == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    return _SCALARS.get(named[0])


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any | None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        value = _type(schema.get("additionalProperties"), root, depth + 1)
        return None if value is None else pa.map_(pa.string(), value)
    fields = []
    for name, each in properties.items():
        kind = _type(each, root, depth + 1)
        fields.append(json_field(name) if kind is None else pa.field(name, kind))
    return pa.struct(fields)


def _followed(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A schema after its references; None if a reference leads nowhere."""
    for _ in range(_DEPTH_MAX):
        if not isinstance(schema, Mapping):
            return None
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _at(root, reference)
    return None


def _at(root: Any, reference: str) -> Any:
    if not reference.startswith("#"):
        return None
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
