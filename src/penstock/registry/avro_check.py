"""Checks the bytes of an Avro value against its schema before a library builds it.

Why: fastavro's compiled reader recurses on the stack of C, so 50 KB of a recursive type end the process, and
a list of nulls of any length takes two bytes. This check walks over the bytes, builds nothing, and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["check_avro", "needs_check"]

_DEPTH_MAX: Final = 60
_ITEMS_MAX: Final = 50_000
_SKIPPED: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def check_avro(schema: Any, named: Mapping[str, Any], data: bytes) -> None:
    """ValueError if a value is nested too deep, has too many items, or ends before its schema does.

    `schema` is a parsed schema of fastavro, and `named` are the types that it names.
    """
    _Walk(data, named).value(schema, 0, 0)


class _Walk:
    def __init__(self, data: bytes, named: Mapping[str, Any]) -> None:
        self._data = data
        self._named = named
        self._items = 0

    def value(self, schema: Any, position: int, depth: int) -> int:
        """The position behind a value."""
        self._items += 1
        if depth > _DEPTH_MAX or self._items > _ITEMS_MAX:
            raise ValueError("the value is nested too deep or has too many items")
        if isinstance(schema, list):
            index, position = self._long(position)
            if not 0 <= index < len(schema):
                raise ValueError(f"a union has no branch {index}")
            return self.value(schema[index], position, depth + 1)
        if isinstance(schema, str):
            if schema in self._named:
                return self.value(self._named[schema], position, depth + 1)
            return self._primitive(schema, position)
        kind = schema["type"]
        if kind in ("record", "error"):
            for field in schema["fields"]:
                position = self.value(field["type"], position, depth + 1)
            return position
        if kind in ("array", "map"):
            return self._blocks(schema, kind == "map", position, depth)
        if kind == "fixed":
            return self._within(position + int(schema["size"]))
        if kind == "enum":
            return self._long(position)[1]
        return self.value(kind, position, depth + 1)

    def _blocks(self, schema: Any, is_map: bool, position: int, depth: int) -> int:
        while True:
            count, position = self._long(position)
            if not count:
                return position
            if count < 0:
                _, position = self._long(position)
            for _ in range(abs(count)):
                if is_map:
                    position = self._primitive("string", position)
                position = self.value(schema["values" if is_map else "items"], position, depth + 1)

    def _primitive(self, kind: str, position: int) -> int:
        if kind in _SKIPPED:
            return self._within(position + _SKIPPED[kind])
        number, position = self._long(position)
        if kind in ("int", "long"):
            return position
        if kind not in ("string", "bytes") or number < 0:
            raise ValueError(f"{kind} is not a type, or has {number} bytes")
        return self._within(position + number)

    def _long(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if position >= len(self._data) or shift > 63:
                raise ValueError("a number is cut off or too long")
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7

    def _within(self, position: int) -> int:
        if position > len(self._data):
            raise ValueError("the value is cut off")
        return position


def needs_check(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a value of few bytes can be nested deep or have many items: other values need no check.

    Those are values of recursive types, and arrays whose items may take no bytes.
    """
    return _Nesting(named).is_unbounded(schema, ())


class _Nesting:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def is_unbounded(self, schema: Any, around: tuple[str, ...]) -> bool:
        if isinstance(schema, list):
            return any(self.is_unbounded(each, around) for each in schema)
        if isinstance(schema, str):
            if schema not in self._named:
                return False
            return schema in around or self.is_unbounded(self._named[schema], around)
        kind = schema["type"]
        if kind in ("record", "error"):
            within = (*around, schema["name"])
            return len(within) > _DEPTH_MAX or any(
                self.is_unbounded(field["type"], within) for field in schema["fields"]
            )
        if kind == "map":
            return self.is_unbounded(schema["values"], around)
        if kind == "array":
            return self._may_be_empty(schema["items"]) or self.is_unbounded(schema["items"], around)
        return kind not in ("fixed", "enum") and self.is_unbounded(kind, around)

    def _may_be_empty(self, schema: Any) -> bool:
        """Whether a value may take no bytes; true for a type by its name, which is not looked up."""
        if isinstance(schema, list):
            return False
        if isinstance(schema, str):
            return schema == "null" or schema in self._named
        kind = schema["type"]
        if kind in ("record", "error"):
            return all(self._may_be_empty(field["type"]) for field in schema["fields"])
        if kind == "fixed":
            return int(schema["size"]) == 0
        return kind not in ("array", "map", "enum") and self._may_be_empty(kind)
