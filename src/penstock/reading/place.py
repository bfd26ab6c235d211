"""The columns of records as readers have them; those of their place are not in the records themselves."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from penstock.reading.planning import OffsetRange
from penstock.records.columnar import HEADERS_TYPE, ROWS_MAX

__all__ = ["COLUMN_TYPES", "Place"]

#: the columns of records, in the order in which readers have them
COLUMN_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}


class Place:
    """Topic and partition of one range, as columns of any length up to `ROWS_MAX`."""

    __slots__ = ("_partition", "_topic")

    def __init__(self, wanted: OffsetRange) -> None:
        self._topic = pa.repeat(pa.scalar(wanted.topic), ROWS_MAX)
        self._partition = pa.repeat(pa.scalar(wanted.partition, pa.int32()), ROWS_MAX)

    def columns(self, rows: int) -> list[Any]:
        """Topic and partition of so many rows."""
        return [self._topic.slice(0, rows), self._partition.slice(0, rows)]
