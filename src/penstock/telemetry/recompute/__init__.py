"""The reference: rollups and views as plain Spark SQL over the table of samples.

It shares no code with the pipeline that writes the streaming tables, so that a comparison of both proves
something. `reference` has the queries, `comparison` compares, `job` reads and writes.

Imports: the schemas of `telemetry.pipeline`, Spark.
Used by: `penstock telemetry recompute`.
"""

from penstock.telemetry.recompute.job import Recomputed, recompute

__all__ = ["Recomputed", "recompute"]
