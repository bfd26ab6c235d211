"""The columns of rows that are written, and their types."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as sql

from penstock.spark.errors import WrongOption

__all__ = ["COLUMNS", "check_columns"]

_BYTES: Final = (sql.BinaryType, sql.StringType)
COLUMNS: Final[dict[str, tuple[type[sql.DataType], ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (sql.StringType,),
    "partition": (sql.IntegerType,),
    "headers": (sql.ArrayType,),
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def check_columns(schema: sql.StructType, topic: str | None) -> None:
    """Raise WrongOption unless rows of `schema` can be written, to `topic` or to a topic that they name."""
    # Other columns are ignored, as in Spark's connector: a frame that was read can be written unchanged.
    for field in schema.fields:
        allowed = COLUMNS.get(field.name)
        if allowed is None:
            continue
        is_headers = field.name == "headers"
        if not isinstance(field.dataType, allowed) or (
            is_headers and field.dataType.simpleString() != _HEADERS
        ):
            kinds = _HEADERS if is_headers else " or ".join(kind.typeName() for kind in allowed)
            raise WrongOption(f"column {field.name} must be {kinds}, not {field.dataType.simpleString()}")
    names = schema.fieldNames()
    if "value" not in names:
        raise WrongOption("the column `value` is missing")
    if topic is None and "topic" not in names:
        raise WrongOption("no topic: set the option topic, or add a column topic")
