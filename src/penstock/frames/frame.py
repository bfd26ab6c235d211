"""A part of a topic as a frame: the same rows each time that it is read.

Ranges are fixed when the frame is made. Rows come partition by partition, in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.frames.duck import TopicDataset
from penstock.frames.scanning import Scan
from penstock.model.installation import pip_install
from penstock.reading.planning import OffsetRange

if TYPE_CHECKING:
    import duckdb
    import polars as pl

__all__ = ["Frame"]


@dataclass(frozen=True)
class Frame:
    """A range of each partition of a topic. `penstock.read` makes one; iterating it reads record batches."""

    scan: Scan
    #: by partition, the first offset and the one behind the last; partitions without records are left out
    ranges: Sequence[OffsetRange]

    @property
    def schema(self) -> Any:
        """The columns, as `pyarrow.Schema`."""
        return self.scan.schema

    def __iter__(self) -> Iterator[Any]:
        """The rows as `pyarrow.RecordBatch`es of up to 16,384 rows."""
        return self.scan.batches(self.ranges)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any library that reads Arrow streams (the Arrow PyCapsule interface)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> Any:
        """The rows as a `pyarrow.RecordBatchReader`, read as they are taken."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> Any:
        """All rows as a `pyarrow.Table`."""
        return pa.Table.from_batches(self, schema=self.schema)

    def to_pandas(self) -> Any:
        """All rows as a `pandas.DataFrame`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`."""
        try:
            import polars as pl
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError("polars is missing: pip install polars", name=e.name) from e
        frame: pl.DataFrame = pl.from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A relation of DuckDB that reads when it is evaluated, and only what its filters leave.

        The relation belongs to `connection`, by default to DuckDB's own.
        """
        try:
            import duckdb
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError(f"{e.name} is missing: {pip_install('frames')}", name=e.name) from e
        own = duckdb.default_connection() if connection is None else connection
        return own.from_arrow(TopicDataset(self.scan, lambda: self.ranges))
