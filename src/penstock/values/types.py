"""Types of columns: what a new one adds to those that are there, and what a name must be like."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["AS_JSON", "added", "clash", "in_words", "is_json", "json_field", "same_items", "unified"]

#: of a field that has no single type: its values are JSON text
AS_JSON: Final = {b"penstock.json": b"true"}
#: Parquet files of Spark and Delta have no such names.
_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
_DEPTH_MAX: Final = 30
_NOTHING: Final = pa.struct([])
_WORDS: Final = {
    "int32": "an int",
    "int64": "a long",
    "float": "a float",
    "double": "a double",
    "bool": "a boolean",
    "string": "a string",
    "binary": "bytes",
    "date32[day]": "a date",
}


def in_words(kind: Any) -> str:
    """A type as a sentence has it."""
    if pa.types.is_timestamp(kind):
        return "a timestamp"
    if pa.types.is_struct(kind):
        return "an object"
    if pa.types.is_list(kind):
        return "a list"
    return _WORDS.get(str(kind), f"a {kind}")


def json_field(name: str) -> Any:
    """A column of JSON text."""
    return pa.field(name, pa.string(), metadata=AS_JSON)


def is_json(field: Any) -> bool:
    return bool(field.metadata) and b"penstock.json" in field.metadata


def clash(name: str, known: Any, reserved: frozenset[str] = frozenset()) -> str | None:
    """Why a name cannot be that of a new field beside those of the structure `known`; None if it can."""
    if not name or not _NOT_IN_NAMES.isdisjoint(name):
        return f"{name!r} cannot be the name of a column"
    if name.lower() in reserved:
        return f"{name!r} is the name of a column of the table itself"
    same = next((each.name for each in known if each.name.lower() == name.lower()), None)
    if same is not None and same != name:
        return f"{name!r} differs from the column {same!r} by case alone"
    return None


def added(known: Any, found: Any, reserved: frozenset[str] = frozenset()) -> Any:
    """The structure `known` with the fields that `found` has in addition; no field changes its type.

    Fields whose names clash are left out, at any depth, and those of which nothing is left then.
    """
    fields = {field.name: field for field in known}
    for field in found:
        own = fields.get(field.name)
        if own is None:
            kind = _without_clashes(field.type)
            if kind is not None and clash(field.name, fields.values(), reserved) is None:
                fields[field.name] = field.with_type(kind)
        elif not is_json(own):
            fields[field.name] = own.with_type(_grown(own.type, field.type))
    return pa.struct([*fields.values()])


def _without_clashes(kind: Any) -> Any | None:
    """A type with those fields in it that columns can have; None if it would have a structure without any."""
    if pa.types.is_struct(kind):
        fields = added(_NOTHING, kind)
        return fields if len(fields) else None
    if pa.types.is_list(kind):
        element = _without_clashes(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_map(kind):
        value = _without_clashes(kind.item_type)
        return None if value is None else pa.map_(kind.key_type, value)
    return kind


def _grown(own: Any, found: Any) -> Any:
    """A type with what a structure in it, or in a list or a map of it, has in addition."""
    if pa.types.is_struct(own) and pa.types.is_struct(found):
        return added(own, found)
    if pa.types.is_list(own) and pa.types.is_list(found):
        return pa.list_(_grown(own.value_type, found.value_type))
    if pa.types.is_map(own) and pa.types.is_map(found):
        return pa.map_(own.key_type, _grown(own.item_type, found.item_type))
    return own


def same_items(one: Any, other: Any) -> tuple[Any, Any]:
    """What lists and maps have in them, as deep as both types have the same of them."""
    while True:
        if pa.types.is_list(one) and pa.types.is_list(other):
            one, other = one.value_type, other.value_type
        elif pa.types.is_map(one) and pa.types.is_map(other):
            one, other = one.item_type, other.item_type
        else:
            return one, other


def unified(one: Any, other: Any, depth: int = 0) -> Any:
    """The type that has the values of both types; None if there is none."""
    if one == other:
        return one
    if {str(one), str(other)} == {"int64", "double"}:
        return pa.float64()
    if depth > _DEPTH_MAX:
        return None
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _unified_fields(one, other, depth)
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = unified(one.value_type, other.value_type, depth + 1)
        return None if element is None else pa.list_(element)
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        value = unified(one.item_type, other.item_type, depth + 1)
        return None if value is None else pa.map_(one.key_type, value)
    return None


def _unified_fields(one: Any, other: Any, depth: int) -> Any:
    fields = {field.name: field for field in one}
    for field in other:
        own = fields.get(field.name)
        if own is None:
            fields[field.name] = field
            continue
        if is_json(own) or is_json(field):
            fields[field.name] = json_field(field.name)
            continue
        kind = unified(own.type, field.type, depth + 1)
        fields[field.name] = json_field(field.name) if kind is None else own.with_type(kind)
    return pa.struct([*fields.values()])
