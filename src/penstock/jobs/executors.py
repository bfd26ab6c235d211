"""Notices that a cluster has no executor for a job.

Why: Spark waits for one without an end, and says so only in its log. A cluster has none if its workers have
died, or if none has enough free cores and memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.jobs.query import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExecutorWatch", "executors_of"]

_PATIENCE_S: Final = 30.0
_MISSING: Final = (
    "Spark has no executor: batches wait until a worker of the cluster has enough free cores and memory "
    "(spark.executor.cores, spark.executor.memory)"
)


def executors_of(spark: SparkSession) -> int | None:
    """How many executors a session has; None if it runs in one process. JvmEnded if the JVM has died."""
    with explained():
        context: Any = spark.sparkContext._jsc.sc()
        # The driver is one of them.
        return None if context.isLocal() else int(context.getExecutorMemoryStatus().size()) - 1


class ExecutorWatch:
    """Call it at intervals: it reports once that executors are missing, and again if they are lost later."""

    def __init__(
        self,
        count: Callable[[], int | None],
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._report = report
        self._clock = clock
        #: when there was one last; None after the report
        self._last_s: float | None = clock()

    def __call__(self) -> None:
        now_s = self._clock()
        if self._count() != 0:
            self._last_s = now_s
        elif self._last_s is not None and now_s - self._last_s >= _PATIENCE_S:
            self._last_s = None
            self._report(_MISSING)
