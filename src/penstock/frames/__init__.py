"""Topics as frames, without Spark: Arrow record batches, Polars, pandas, and SQL through DuckDB.

`read` resolves where a frame starts and ends; the `Frame` reads the same rows each time. SQL queries see
topics as tables; `pruning` finds the partitions, offsets and times that a query leaves, and only those are
read.

Imports: `reading`, `values`, `registry` and `model`. An import contract keeps brokers and clients out.
Used by: programs, as `penstock.read`; `penstock sql`.
"""

from penstock.frames.frame import Frame
from penstock.frames.opening import read
from penstock.reading.errors import DataLost, WrongOption

__all__ = ["DataLost", "Frame", "WrongOption", "read"]
