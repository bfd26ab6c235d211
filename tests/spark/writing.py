"""Writes rows through the Spark connector."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql import types as sql
from pyspark.sql.datasource import WriterCommitMessage

from tests.spark.topics import source


def write(bootstrap: str, schema: sql.StructType, rows: list[dict[str, Any]], **options: str) -> None:
    """As one task does it."""
    writer = source(bootstrap, **options).writer(schema, overwrite=False)
    writer = pickle.loads(pickle.dumps(writer))
    batches = iter(
        [pa.RecordBatch.from_pylist(rows, pa.schema([(n, _TYPES[n]) for n in schema.fieldNames()]))]
    )
    assert isinstance(writer.write(batches), WriterCommitMessage)


_TYPES = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
