"""Values of Python as columns: whole columns at once where all values are of the type, else one by one.

Arrow itself is lenient: it makes 1 of 1.5 and a list of a string. So types are compared first, whole columns
at once by the set of their classes. What is of another class is converted if nothing is lost, or does not
fit.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa

from penstock.values.types import in_words, is_json

__all__ = ["Fitted", "Misfit", "fit"]

Convert: TypeAlias = Callable[[Any], Any]
_NOTHING: Final = type(None)
_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
#: the classes that Arrow takes as they are
_CLASSES: Final[dict[str, set[type]]] = {
    "int32": {int, _NOTHING},
    "int64": {int, _NOTHING},
    "double": {float, _NOTHING},
    "float": {float, _NOTHING},
    "bool": {bool, _NOTHING},
    "string": {str, _NOTHING},
    "binary": {bytes, _NOTHING},
    "date32[day]": {datetime.date, _NOTHING},
}
_SHOWN_MAX: Final = 80


class Misfit(ValueError):
    """A value that does not fit its column; the message says which one, and why."""


class Fitted(NamedTuple):
    """Columns of those values that fit, as a structure, and for each value why it does not; None if it does.

    A value that is null fits: its row has nulls.
    """

    column: Any
    reasons: list[str | None]


def fit(values: Sequence[Mapping[str, Any] | None], kind: Any) -> Fitted:
    """Objects as a column of the structure `kind`; a value that does not fit is null in it."""
    block = _block(values, kind)
    if block is not None:
        return Fitted(block, [None] * len(values))
    convert = _struct(kind, "")
    converted: list[Any] = []
    reasons: list[str | None] = []
    for value in values:
        try:
            converted.append(None if value is None else convert(value))
            reasons.append(None)
        except Misfit as error:
            converted.append(None)
            reasons.append(str(error))
    return Fitted(pa.array(converted, kind), reasons)


def _block(values: Sequence[Any], kind: Any) -> Any | None:
    """The column of all values; None if one of them has to be looked at by itself."""
    if pa.types.is_struct(kind):
        return _struct_block(values, kind)
    if pa.types.is_list(kind):
        return _list_block(values, kind)
    classes = _CLASSES.get(str(kind))
    if classes is None and pa.types.is_timestamp(kind):
        classes = {datetime.datetime, _NOTHING}
    if classes is None or not set(map(type, values)) <= classes:
        return None
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None


def _struct_block(values: Sequence[Any], kind: Any) -> Any | None:
    if not set(map(type, values)) <= {dict, _NOTHING} or any(is_json(field) for field in kind):
        return None
    is_null = [value is None for value in values]
    has_nulls = True in is_null
    rows = [value or {} for value in values] if has_nulls else values
    children = []
    for field in kind:
        name = field.name
        child = _block([row.get(name) for row in rows], field.type)
        if child is None:
            return None
        children.append(child)
    if not children:
        return pa.array(values, kind)
    mask = pa.array(is_null) if has_nulls else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _list_block(values: Sequence[Any], kind: Any) -> Any | None:
    if not set(map(type, values)) <= {list, _NOTHING}:
        return None
    items = _block(list(chain.from_iterable(value or () for value in values)), kind.value_type)
    if items is None:
        return None
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or ()) for value in values], out=bounds[1:])
    mask = np.array([*(value is None for value in values), False])
    return pa.ListArray.from_arrays(pa.array(bounds, mask=mask if mask.any() else None), items, type=kind)


def _converter(field: Any, path: str) -> Convert:
    """A function that makes a value of a field what Arrow takes, and raises Misfit."""
    kind = field.type
    if is_json(field):
        return _json_text
    if pa.types.is_struct(kind):
        return _struct(kind, path)
    if pa.types.is_list(kind):
        return _list(kind, path)
    if pa.types.is_map(kind):
        return _map(kind, path)
    if pa.types.is_decimal(kind):
        return _decimal(kind, path)
    if pa.types.is_timestamp(kind):
        return _scalar(_timestamp, kind, path)
    return _scalar(_SCALARS[str(kind)], kind, path)


def _struct(kind: Any, path: str) -> Convert:
    prefix = f"{path}." if path else ""
    fields = {field.name: _converter(field, f"{prefix}{field.name}") for field in kind}

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _misfit(path, kind, value)
        return {
            name: None if (own := value.get(name)) is None else each(own) for name, each in fields.items()
        }

    return convert


def _list(kind: Any, path: str) -> Convert:
    each = _converter(kind.value_field, f"{path}[]")

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _misfit(path, kind, value)
        return [None if item is None else each(item) for item in value]

    return convert


def _map(kind: Any, path: str) -> Convert:
    each = _converter(kind.item_field, f"{path}{{}}")

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _misfit(path, kind, value)
        return [(str(key), None if item is None else each(item)) for key, item in value.items()]

    return convert


def _decimal(kind: Any, path: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, Decimal):
            raise _misfit(path, kind, value)
        try:
            pa.scalar(value, kind)
        except pa.ArrowInvalid as error:
            raise _misfit(path, kind, value) from error
        return value

    return convert


def _scalar(make: Callable[[Any, Any], Any], kind: Any, path: str) -> Convert:
    def convert(value: Any) -> Any:
        try:
            return make(value, kind)
        except (TypeError, ValueError, OverflowError) as error:
            raise _misfit(path, kind, value) from error

    return convert


def _misfit(path: str, kind: Any, value: Any) -> Misfit:
    shown = repr(value)
    shown = f"{shown[:_SHOWN_MAX]}…" if len(shown) > _SHOWN_MAX else shown
    return Misfit(f"{path or 'the value'} is {in_words(kind)}, and {shown} does not fit")


def _integer(value: Any, kind: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError
    limit = _LIMITS[str(kind)]
    if not -limit <= value < limit:
        raise OverflowError
    return int(value)


def _floating(value: Any, kind: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    return float(value)


def _boolean(value: Any, kind: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _string(value: Any, kind: Any) -> str:
    if isinstance(value, UUID | datetime.time):
        return str(value)
    if not isinstance(value, str):
        raise TypeError
    value.encode()
    return value


def _binary(value: Any, kind: Any) -> bytes:
    return value if isinstance(value, bytes) else msgspec.convert(value, bytes)


def _date(value: Any, kind: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise TypeError
    return value if isinstance(value, datetime.date) else msgspec.convert(value, datetime.date)


def _timestamp(value: Any, kind: Any) -> datetime.datetime:
    if isinstance(value, int | float):
        raise TypeError
    found = value if isinstance(value, datetime.datetime) else msgspec.convert(value, datetime.datetime)
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


_SCALARS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "int32": _integer,
    "int64": _integer,
    "double": _floating,
    "float": _floating,
    "bool": _boolean,
    "string": _string,
    "binary": _binary,
    "date32[day]": _date,
}
