"""The columns that Spark gets, and how decoded records become them.

Spark checks the schema of a task's first Arrow batch only, but exactly: names, order, types, nullability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.reading.planning import OffsetRange
from penstock.records.columnar import HEADERS_TYPE, ROWS_MAX

if TYPE_CHECKING:
    from penstock.spark.json_values import JsonValues

__all__ = ["Rows", "column_names", "ddl"]

_PLACE_DDL: Final = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS_DDL: Final = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_PLACE: Final = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
]


def ddl(json_schema: str | None, *, headers: bool, raw: bool = False) -> str:
    """The columns as DDL: a JSON value is a structure, with its bytes in a second column if malformed."""
    value = "value BINARY" if json_schema is None else f"value STRUCT<{json_schema}>, malformed BINARY"
    value += ", raw BINARY" if raw else ""
    return f"key BINARY, {value}, {_PLACE_DDL}" + (_HEADERS_DDL if headers else "")


def column_names(*, json: bool, headers: bool, raw: bool = False) -> list[str]:
    """The names of the same columns."""
    values = ["key", "value", *(["malformed"] if json else []), *(["raw"] if raw else [])]
    return [*values, *(field.name for field in _PLACE), *(["headers"] if headers else [])]


class Rows:
    """Gives the decoded records of one range their place, and values their types."""

    __slots__ = ("_json", "_partition", "_raw", "_schema", "_topic")

    def __init__(
        self, wanted: OffsetRange, schema: StructType, *, json: bool, headers: bool, raw: bool = False
    ) -> None:
        self._json = _json_values(schema) if json else None
        value = [pa.field("value", pa.binary())]
        if self._json is not None:
            value = [pa.field("value", self._json.type), pa.field("malformed", pa.binary())]
        self._raw = raw
        if raw:
            value.append(pa.field("raw", pa.binary()))
        fields = [pa.field("key", pa.binary()), *value, *_PLACE]
        self._schema = pa.schema([*fields, pa.field("headers", HEADERS_TYPE)] if headers else fields)
        self._topic = pa.repeat(pa.scalar(wanted.topic), ROWS_MAX)
        self._partition = pa.repeat(pa.scalar(wanted.partition, pa.int32()), ROWS_MAX)

    def of(self, records: Any) -> Any:
        """The rows of one batch of `records.columnar.decode`."""
        key, value, *rest = records.columns
        values = [value] if self._json is None else [*self._json.decode(value)]
        if self._raw:
            values.append(value)
        place = [self._topic.slice(0, len(key)), self._partition.slice(0, len(key))]
        return pa.RecordBatch.from_arrays([key, *values, *place, *rest], schema=self._schema)


def _json_values(schema: StructType) -> JsonValues:
    # Imported where it is needed: each query pays for imports, where it is planned and where it runs.
    from penstock.spark.json_values import JsonValues

    return JsonValues(schema["value"].dataType)
