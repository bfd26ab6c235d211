"""Where Spark looks for data sources: modules named `pyspark_…` that have a `DefaultSource`."""

from penstock.spark import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
