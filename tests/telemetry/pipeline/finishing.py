"""Queries that run to their end on a machine that may be busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from penstock.jobs.supervision import QueryFailed, Retries
from penstock.telemetry.pipeline.jobs import Job, Started, start

__all__ = ["complete"]


def complete(
    spark: SparkSession, job: Job, report: Callable[[Any], None] = lambda report: None, tries: int = 4
) -> Started:
    """Run a backfill, and again what is transient: Spark gives a Python worker ten seconds to start."""
    retries = Retries(tries)
    while True:
        started = start(spark, job, report)
        try:
            started.complete()
            return started
        except QueryFailed as error:
            if retries.next_wait_s(error.__cause__ or error, None) is None:
                raise
