"""Values that are JSON objects, as a typed column.

A whole block of values is decoded in one call where that is safe, else each by itself. It is safe where every
value starts with { and ends with }, and as many objects came out as there are values: they are joined by line
ends, no JSON string may hold one, and no object goes on behind a } with a {, so no object spans two values;
then each value holds at least one object, and so exactly one. A value that is no such object becomes null,
its bytes are kept beside it, and its neighbours do not change.

Maps are labels more often than not, and say the same in row after row: a block decodes each of them once.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_type

from penstock.spark.errors import WrongOption

__all__ = ["AS_WRITTEN", "JsonValues"]

#: Metadata of a field of BinaryType: its value is the JSON as it is written, whatever it is; null is null.
AS_WRITTEN: Final = {"as_written": True}

_OPEN, _CLOSE = b"{}"


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_SCALARS: Final[dict[type[sql.DataType], Any]] = {
    sql.StringType: str,
    sql.BooleanType: bool,
    sql.ByteType: _integer(8),
    sql.ShortType: _integer(16),
    sql.IntegerType: _integer(32),
    sql.LongType: _integer(64),
    sql.FloatType: float,
    sql.DoubleType: float,
    sql.TimestampType: datetime.datetime,
    sql.DateType: datetime.date,
    # base64, as Spark's from_json has it
    sql.BinaryType: bytes,
}


class JsonValues:
    """Decodes values to one structure's type."""

    __slots__ = ("_block_column", "_block_decoder", "_column", "_decoder", "type")

    def __init__(self, schema: sql.DataType) -> None:
        self.type: Any = to_arrow_type(schema, timezone="UTC")
        self._decoder = msgspec.json.Decoder(_python_type(schema, "value"))
        self._column = _column_of(schema)
        self._block_decoder = msgspec.json.Decoder(_python_type(schema, "value", raw_maps=True))
        self._block_column = _column_of(schema, raw_maps=True)

    def decode(self, values: Any) -> tuple[Any, Any]:
        """The typed values, and the bytes of those that are not null and have no typed value."""
        block = self._decode_block(values)
        if block is not None:
            return block, pa.nulls(len(values), pa.binary())
        raw = values.to_pylist()
        rows = [self._decode_one(value) for value in raw]
        malformed = [value if row is None else None for value, row in zip(raw, rows, strict=True)]
        return self._column(rows), pa.array(malformed, pa.binary())

    def _decode_block(self, values: Any) -> Any | None:
        """All values at once; None where one of them is, or may be, no object of this type."""
        if values.null_count or not _are_braced(values):
            return None
        bounds = pa.array([0, len(values)], pa.int32())
        lines = pc.binary_join(pa.ListArray.from_arrays(bounds, values), b"\n")[0].as_buffer()
        try:
            rows = self._block_decoder.decode_lines(memoryview(lines))
            return self._block_column(rows) if len(rows) == len(values) else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _decode_one(self, value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return self._decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _are_braced(values: Any) -> bool:
    """Whether each value starts with { and ends with }."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    if len(values) == 0 or int(np.diff(bounds).min()) < 2:
        return False
    content = np.frombuffer(data, np.uint8)
    return bool((content[bounds[:-1]] == _OPEN).all() and (content[bounds[1:] - 1] == _CLOSE).all())


def _python_type(kind: sql.DataType, where: str, *, raw_maps: bool = False) -> Any:
    """The type that msgspec validates and creates; WrongOption names an unsupported field.

    With `raw_maps` it leaves maps as they are written, for `_raw_map_column`.
    """
    if type(kind) in _SCALARS:
        return _SCALARS[type(kind)]
    if isinstance(kind, sql.ArrayType):
        element = _nullable(_python_type(kind.elementType, where, raw_maps=raw_maps))
        return list[element]  # type: ignore[valid-type]
    if isinstance(kind, sql.MapType) and isinstance(kind.keyType, sql.StringType):
        if raw_maps:
            return msgspec.Raw
        value = _python_type(kind.valueType, where)
        return dict[str, value | None]  # type: ignore[valid-type]
    if not isinstance(kind, sql.StructType):
        raise WrongOption(f"valueSchema: {where} cannot be {kind.simpleString()}: read a string and cast it")
    for field in kind.fields:
        if not field.nullable:
            raise WrongOption(f"valueSchema: {where}.{field.name} is NOT NULL, which no message can promise")
    fields = [
        (
            f"f{number}",
            msgspec.Raw
            if field.metadata == AS_WRITTEN
            else _nullable(_python_type(field.dataType, f"{where}.{field.name}", raw_maps=raw_maps)),
            None,
        )
        for number, field in enumerate(kind.fields)
    ]
    names = {f"f{number}": field.name for number, field in enumerate(kind.fields)}
    return msgspec.defstruct("Value", fields, rename=names, gc=False)


def _nullable(kind: Any) -> Any:
    # A raw value may be null already, and msgspec has no union with raw values.
    return kind if kind is msgspec.Raw else kind | None


def _column_of(kind: sql.DataType, *, raw_maps: bool = False) -> Callable[[Sequence[Any]], Any]:
    """A function from decoded values, or None, to an Arrow array."""
    arrow = to_arrow_type(kind, timezone="UTC")
    if isinstance(kind, sql.StructType):
        children = [
            _raw_column if field.metadata == AS_WRITTEN else _column_of(field.dataType, raw_maps=raw_maps)
            for field in kind.fields
        ]
        readers = [_reader_of(number) for number in range(len(children))]
        return lambda rows: _struct_column(rows, readers, children, arrow)
    if isinstance(kind, sql.ArrayType):
        elements = _column_of(kind.elementType, raw_maps=raw_maps)
        return lambda rows: _list_column(rows, elements, arrow)
    if isinstance(kind, sql.MapType):
        values = _column_of(kind.valueType)
        if raw_maps:
            decoder = msgspec.json.Decoder(_python_type(kind, "value") | None)
            return lambda rows: _raw_map_column(rows, decoder, values, arrow)
        return lambda rows: _map_column(rows, values, arrow)
    return lambda rows: pa.array(rows, arrow)


def _reader_of(number: int) -> Callable[[Sequence[Any]], list[Any]]:
    """Reads one field of all rows: a name that stands in the code costs half of what `attrgetter` does."""
    made: Callable[[Sequence[Any]], list[Any]] = eval(f"lambda rows: [row.f{number} for row in rows]")
    return made


def _struct_column(
    rows: Sequence[Any],
    readers: list[Callable[[Sequence[Any]], list[Any]]],
    children: list[Callable[[Sequence[Any]], Any]],
    arrow: Any,
) -> Any:
    is_null = [row is None for row in rows]
    mask = None
    if True in is_null:
        some = next((row for row in rows if row is not None), None)
        if some is None:
            return pa.nulls(len(rows), arrow)
        mask, nothing = pa.array(is_null), type(some)()
        rows = [nothing if row is None else row for row in rows]
    columns = [child(read(rows)) for child, read in zip(children, readers, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(arrow), mask=mask)


def _raw_column(rows: Sequence[Any]) -> Any:
    texts = [None if row is None else bytes(row) for row in rows]
    return pa.array([None if text == b"null" else text for text in texts], pa.binary())


def _raw_map_column(
    rows: Sequence[Any], decoder: Any, values: Callable[[Sequence[Any]], Any], arrow: Any
) -> Any:
    """Maps as they are written, None where there is none; a DecodeError where one is no such map."""
    number_of: dict[bytes, int] = {}
    texts = [b"null" if row is None else bytes(row) for row in rows]
    numbers = [number_of.setdefault(text, len(number_of)) for text in texts]
    distinct = _map_column([decoder.decode(text) for text in number_of], values, arrow)
    return distinct.take(pa.array(numbers, pa.int32()))


def _list_column(rows: Sequence[Any], elements: Callable[[Sequence[Any]], Any], arrow: Any) -> Any:
    bounds, present = _bounds(rows)
    return pa.ListArray.from_arrays(bounds, elements(list(chain.from_iterable(present))), type=arrow)


def _map_column(rows: Sequence[Any], values: Callable[[Sequence[Any]], Any], arrow: Any) -> Any:
    bounds, present = _bounds(rows)
    keys = pa.array(list(chain.from_iterable(present)), pa.string())
    items = values(list(chain.from_iterable(map(dict.values, present))))
    return pa.MapArray.from_arrays(bounds, keys, items, type=arrow)


def _bounds(rows: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Where each row's elements start among those of all rows, null where the row is; and the other rows."""
    is_null = [row is None for row in rows]
    has_nulls = True in is_null
    sizes = map(len, [row or () for row in rows] if has_nulls else rows)
    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.fromiter(sizes, np.int32, len(rows)), out=bounds[1:])
    if not has_nulls:
        return pa.array(bounds), rows
    return pa.array(bounds, mask=np.array([*is_null, False])), [row for row in rows if row is not None]
