"""The columns that every table has beside those of its values, and the table of its dead letters."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.jobs.delta import INSTANT, Layout
from penstock.tables.definition import TableDefinition

__all__ = [
    "BUCKET",
    "DAY",
    "DEAD_LETTERS",
    "RESERVED",
    "dead_letters_layout",
    "fields_of",
    "layout_of",
    "place_of",
]

DAY: Final = "_day"
BUCKET: Final = "_bucket"
#: Where a row comes from. The first column has times, of which files have statistics.
_PLACE: Final = [("_timestamp", INSTANT), ("_partition", pa.int32()), ("_offset", pa.int64())]
_KEY: Final = "_key"
#: names that fields of values cannot have, in lower case
RESERVED: Final = frozenset({"_timestamp", "_partition", "_offset", _KEY, DAY, BUCKET})
DEAD_LETTERS: Final = pa.schema(
    [
        ("timestamp", INSTANT),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def place_of(definition: TableDefinition) -> list[Any]:
    """The columns of a row's place and key."""
    key = pa.binary() if definition.key == "binary" else pa.string()
    return [pa.field(name, kind) for name, kind in (*_PLACE, (_KEY, key))]


def layout_of(definition: TableDefinition, fields: Any) -> Layout:
    """The table with the columns of values in the structure `fields`."""
    columns = pa.schema([*place_of(definition), *fields])
    if definition.mode == "append":
        return Layout(definition.folder, columns, DAY, pa.date32())
    return Layout(definition.folder, columns, BUCKET, pa.int32())


def fields_of(schema: Any) -> Any:
    """The columns of values in the schema of a table, as a structure."""
    return pa.struct([field for field in pa.schema(schema) if field.name.lower() not in RESERVED])


def dead_letters_layout(definition: TableDefinition) -> Layout:
    return Layout(definition.dead_letters, DEAD_LETTERS, "day", pa.date32())
