"""Structures of Arrow as Spark has them, and back. A comment marks fields of JSON text on the way."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_type

from penstock.values.types import AS_JSON, is_json

__all__ = ["arrow_of", "ddl_of"]

_JSON_TEXT: Final = "JSON text"
_SCALARS: Final = {
    "bool": "BOOLEAN",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date32[day]": "DATE",
}


def ddl_of(fields: Any) -> str:
    """The fields of a structure."""
    return ", ".join(f"{_quoted(each.name)}: {_type(each.type)}{_comment(each)}" for each in fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _comment(field: Any) -> str:
    return f" COMMENT '{_JSON_TEXT}'" if is_json(field) else ""


def _type(kind: Any) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{ddl_of(kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<STRING, {_type(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    return _SCALARS[str(kind)]


def arrow_of(kind: sql.DataType) -> Any:
    """The type that Spark expects of a column, with the marks of JSON text."""
    if isinstance(kind, sql.StructType):
        return pa.struct([_field(each) for each in kind.fields])
    if isinstance(kind, sql.ArrayType):
        return pa.list_(pa.field("element", arrow_of(kind.elementType)))
    return to_arrow_type(kind, timezone="UTC")


def _field(field: sql.StructField) -> Any:
    marks = AS_JSON if field.metadata.get("comment") == _JSON_TEXT else None
    return pa.field(field.name, arrow_of(field.dataType), metadata=marks)
