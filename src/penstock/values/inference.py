"""The columns of values that have no schema.

A field has the type of its first values: those of the batch that brings it. Whole numbers and fractions are
doubles, values of several types are JSON text. Nulls, and empty objects and lists, have no type yet: their
field becomes a column with the first value that has one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.values.types import is_json, json_field, unified

__all__ = ["inferred", "new_fields"]

_DEPTH_MAX: Final = 30
_SCALARS: Final[dict[type, Any]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", "UTC"),
    datetime.date: pa.date32(),
}
_INT64: Final = range(-(2**63), 2**63)
#: what `unified` is given for values without a common type
_SEVERAL: Final = "several types"


def inferred(value: Any, depth: int = 0) -> Any:
    """The type of a value; None if it has none yet, `_SEVERAL` if only JSON text can have it."""
    if value is None:
        return None
    kind = _SCALARS.get(type(value))
    if kind is not None:
        return pa.float64() if type(value) is int and value not in _INT64 else kind
    if depth > _DEPTH_MAX:
        return _SEVERAL
    if isinstance(value, Mapping):
        # Names that cannot be columns are found when the others are known.
        fields = _fields([value], depth + 1)
        return pa.struct(fields) if fields else None
    if isinstance(value, list | tuple):
        element = _common(value, depth + 1)
        return element if element is None or element is _SEVERAL else pa.list_(element)
    if isinstance(value, Decimal):
        return pa.float64()
    return pa.string()


def new_fields(rows: Sequence[Mapping[str, Any]], known: Any) -> Any:
    """The structure of the fields in `rows` that the structure `known` lacks, at any depth."""
    return pa.struct(list(_new(rows, known, 0)))


def _new(rows: Sequence[Mapping[str, Any]], known: Any, depth: int) -> Iterable[Any]:
    names = set().union(*rows)
    unknown = names - {field.name for field in known}
    if unknown:
        yield from _fields([{name: row[name] for name in row if name in unknown} for row in rows], depth)
    for field in known:
        if field.name not in names or is_json(field):
            continue
        kind = _within(field.type, [row.get(field.name) for row in rows], depth + 1)
        if kind is not None:
            yield field.with_type(kind)


def _within(kind: Any, values: Sequence[Any], depth: int) -> Any:
    """A structure, or lists or maps of one, with its new fields alone; None if there are none."""
    if depth > _DEPTH_MAX:
        return None
    if pa.types.is_struct(kind):
        found = pa.struct(list(_new([value for value in values if isinstance(value, Mapping)], kind, depth)))
        return found if len(found) else None
    if pa.types.is_list(kind):
        items = [item for value in values if isinstance(value, list) for item in value]
        element = _within(kind.value_type, items, depth)
        return None if element is None else pa.list_(element)
    if pa.types.is_map(kind):
        items = [item for value in values if isinstance(value, Mapping) for item in value.values()]
        item_type = _within(kind.item_type, items, depth)
        return None if item_type is None else pa.map_(kind.key_type, item_type)
    return None


def _fields(rows: Sequence[Mapping[str, Any]], depth: int) -> list[Any]:
    """The fields of objects, in the order in which they appear."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    fields = []
    for name, some in values.items():
        kind = _common(some, depth)
        if kind is not None:
            fields.append(json_field(name) if kind is _SEVERAL else pa.field(name, kind))
    return fields


def _common(values: Iterable[Any], depth: int) -> Any:
    """The type of all values; None if none has one."""
    common: Any = None
    for value in values:
        kind = inferred(value, depth)
        if kind is _SEVERAL:
            return _SEVERAL
        if kind is None or kind == common:
            continue
        common = kind if common is None else unified(common, kind)
        if common is None:
            return _SEVERAL
    return common
