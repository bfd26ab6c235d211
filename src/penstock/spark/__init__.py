"""The Spark data source: `spark.read.format("penstock")`, and readStream, write and writeStream likewise.

Spark finds it if the package is installed (`pyspark_penstock`); otherwise call
`spark.dataSource.register(PenstockDataSource)`. It needs no jar, and works with any cluster that speaks the
protocol. Columns and options are those of Spark's own Kafka connector; `docs/spark.md` has them all.

Imports: `twophase`, `reading`, `values`, `registry`, `scan`, `archive`, `net` (errors), `wire`, `records`,
`security`, `ports`, `model`. An import contract keeps brokers and clients out.
Used by: Spark, and `jobs`.
"""

from penstock.spark.source import PenstockDataSource
from penstock.spark.streaming import behind_latest, start_query

__all__ = ["PenstockDataSource", "behind_latest", "start_query"]
