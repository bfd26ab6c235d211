"""The entry point that Spark calls, in a process of its own on the driver's machine."""

from __future__ import annotations

import json

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from penstock.spark.archive_options import chosen_columns
from penstock.spark.errors import WrongOption
from penstock.spark.options import ReadOptions, is_exactly_once, registry_of
from penstock.spark.readers import BatchReader, FilteringReader, StreamReader
from penstock.spark.registry_options import value_fields
from penstock.spark.rows import column_names, ddl

__all__ = ["PenstockDataSource"]


class PenstockDataSource(DataSource):
    """`format("penstock")`: the functions of Spark's Kafka connector, without a jar."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        # Batch and stream cannot be distinguished here, so only the common options are checked.
        headers, raw = (
            self.options.get(name, "false").strip().lower() == "true"
            for name in ("includeheaders", "includeraw")
        )
        fields = _fields(self.options.get("valueschema"))
        if self.options.get("valueformat", "").strip().lower() == "registry":
            fields = value_fields(registry_of(self.options))
        available = column_names(json=fields is not None, headers=headers, raw=raw)
        return ddl(chosen_columns(self.options.get("columns"), available), fields)

    def reader(self, schema: StructType) -> BatchReader:
        options = self._read_options(schema, streaming=False)
        # Spark refuses a reader with `pushFilters` while its own setting is off, so it is asked for.
        return (FilteringReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._read_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise WrongOption("a topic cannot be overwritten: use mode('append')")
        # Writers are imported only to write: librdkafka would be a third of the modules of a reader.
        if is_exactly_once(self.options):
            from penstock.spark.exactly_once.writers import new_batch_writer

            return new_batch_writer(self.options, schema)
        from penstock.spark.writers import BatchWriter, new_rows_writer

        return BatchWriter(new_rows_writer(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if is_exactly_once(self.options):
            from penstock.spark.exactly_once.writers import new_stream_writer

            return new_stream_writer(self.options, schema)
        from penstock.spark.writers import StreamWriter, new_rows_writer

        return StreamWriter(new_rows_writer(self.options, schema))

    def _read_options(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        options = ReadOptions.parse(self.options, streaming=streaming)
        available = column_names(json=options.is_typed, headers=options.headers, raw=options.raw)
        if schema.fieldNames() != chosen_columns(self.options.get("columns"), available):
            raise WrongOption(
                "the columns are fixed: leave out schema(…), and cast, select, or name some in `columns`"
            )
        return options


def _fields(schema: str | None) -> str | None:
    """The fields of a value, as DDL or as the JSON of `StructType.json()`."""
    if schema is None or not schema.lstrip().startswith("{"):
        return schema
    fields = StructType.fromJson(json.loads(schema)).fields
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
