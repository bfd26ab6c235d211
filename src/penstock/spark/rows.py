"""The columns that Spark gets, and how decoded records become them.

Spark checks the schema of a task's first Arrow batch only, but exactly: names, order, types, nullability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.reading.place import COLUMN_TYPES, Place
from penstock.reading.planning import OffsetRange

if TYPE_CHECKING:
    from penstock.spark.json_values import JsonValues
    from penstock.spark.registry_options import RegistryOptions
    from penstock.values.typed import RegistryValues

__all__ = ["Rows", "column_names", "ddl", "decoded_columns"]

_DDL: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "malformed": "BINARY",
    "raw": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
_TYPES: Final = COLUMN_TYPES | {"malformed": pa.binary(), "raw": pa.binary()}
#: columns that are made of the value
_OF_VALUE: Final = frozenset({"value", "malformed", "raw"})


def ddl(names: Sequence[str], json_schema: str | None) -> str:
    """The columns as DDL: a JSON value is a structure, with its bytes in a second column if malformed."""
    types = _DDL if json_schema is None else _DDL | {"value": f"STRUCT<{json_schema}>"}
    return ", ".join(f"{name} {types[name]}" for name in names)


def column_names(*, json: bool, headers: bool, raw: bool = False) -> list[str]:
    """The names of all columns of a query."""
    left_out = {
        name for name, given in (("malformed", json), ("headers", headers), ("raw", raw)) if not given
    }
    return [name for name in _DDL if name not in left_out]


def decoded_columns(names: Iterable[str]) -> frozenset[str]:
    """What has to be decoded of records for these columns; at least one column, which counts the rows."""
    wanted = {"value" if name in _OF_VALUE else name for name in names} - {"topic", "partition"}
    return frozenset(wanted or {"offset"})


class Rows:
    """Gives the decoded records of one range their place, and values their types."""

    __slots__ = ("_place", "_schema", "_values")

    def __init__(
        self,
        wanted: OffsetRange,
        schema: StructType,
        *,
        json: bool,
        registry: RegistryOptions | None = None,
    ) -> None:
        names = schema.fieldNames()
        self._values: JsonValues | RegistryValues | None = None
        if "value" in names and registry is not None:
            self._values = _registry_values(schema, registry)
        elif "value" in names and json:
            self._values = _json_values(schema)
        types = _TYPES if self._values is None else _TYPES | {"value": self._values.type}
        self._schema = pa.schema([pa.field(name, types[name]) for name in names])
        self._place = Place(wanted)

    def of(self, records: Any) -> Any:
        """The rows of one batch of `records.columnar.decode`."""
        made = dict(zip(records.schema.names, records.columns, strict=True))
        made["topic"], made["partition"] = self._place.columns(records.num_rows)
        if "value" in made:
            made["raw"] = made["value"]
            if self._values is not None:
                made["value"], made["malformed"] = self._values.decode(made["raw"])
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)


def _json_values(schema: StructType) -> JsonValues:
    # Imported where it is needed: each query pays for imports, where it is planned and where it runs.
    from penstock.spark.json_values import JsonValues

    return JsonValues(schema["value"].dataType)


def _registry_values(schema: StructType, registry: RegistryOptions) -> RegistryValues:
    from penstock.spark.registry_types import arrow_of
    from penstock.values.typed import RegistryValues

    return RegistryValues(arrow_of(schema["value"].dataType), registry.settings)
