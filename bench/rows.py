"""The rows of the table, in its order.

A row yields one value per metric and round. Rows know nothing of the other contenders: the runner alternates
contenders, so each row leaves the broker as it found it.
"""

from __future__ import annotations

from bench import (
    active,
    archive,
    beside,
    clients,
    cluster,
    encryption,
    failover,
    frames,
    groups,
    latency,
    lifecycle,
    links,
    pipeline,
    pipeline_scale,
    pipeline_start,
    requests,
    roll,
    scaling,
    scan,
    scrape,
    secured,
    shares,
    spark,
    spark_sink,
    streams,
    tables,
    throughput,
    transactions,
)
from bench.table import Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    *throughput.ROWS,
    *latency.ROWS,
    *requests.ROWS,
    *lifecycle.ROWS,
    *beside.ROWS,
    *groups.ROWS,
    *active.ROWS,
    *clients.ROWS,
    *scaling.ROWS,
    *scrape.ROWS,
    *secured.ROWS,
    *encryption.ROWS,
    *archive.ROWS,
    *shares.ROWS,
    *streams.ROWS,
    *spark.ROWS,
    *spark_sink.ROWS,
    *frames.ROWS,
    *scan.ROWS,
    *tables.ROWS,
    *cluster.ROWS,
    *failover.ROWS,
    *roll.ROWS,
    *links.ROWS,
    *transactions.ROWS,
    *pipeline.ROWS,
    *pipeline_start.ROWS,
    *pipeline_scale.ROWS,
)
