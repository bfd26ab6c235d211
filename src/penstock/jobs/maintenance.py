"""Compaction and vacuum of Delta tables beside a query, in tasks of its session."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.jobs.query import LOST_JVM
from penstock.jobs.supervision import reason_of

__all__ = ["Maintainable", "Maintenance"]

_log: Final = logging.getLogger(__name__)
#: small files of a table between two compactions
_FILES_MAX: Final = 1000


class Maintainable(Protocol):
    """Tables by their names; sent to executors."""

    def maintain(self, table: str, retention_hours: int) -> None: ...


class Batch(Protocol):
    """The report of a batch, as far as maintenance is concerned."""

    @property
    def batch_id(self) -> int: ...

    @property
    def files(self) -> Mapping[str, int]: ...


class Maintenance:
    """Compacts and vacuums tables every so many batches, beside them, in tasks of the session.

    A table is also compacted when batches have added `_FILES_MAX` files to it, so the number of small files
    is bounded however many tasks a batch has. Maintenance takes at most a quarter of the session's slots.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: Maintainable,
        names: Sequence[str],
        every: int,
        retention_hours: int,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._names = tuple(names)
        self._every = every
        self._retention_hours = retention_hours
        self._added: Counter[str] = Counter()
        self._worker = ThreadPoolExecutor(1, "maintenance")
        self._running: Future[None] | None = None

    def __call__(self, report: Batch) -> None:
        if not self._every:
            return
        self._added.update(report.files)
        is_due = report.batch_id % self._every == self._every - 1
        many = [table for table, number in self._added.items() if number >= _FILES_MAX]
        names = list(self._names) if is_due else many
        if names and (self._running is None or self._running.done()):
            for name in names:
                del self._added[name]
            self._running = self._worker.submit(self.run, names)

    def run(self, names: Sequence[str] | None = None) -> None:
        """Maintain some tables on executors, by default all; a failure is logged, and tried again later."""
        names = self._names if names is None else names
        tables, hours = self._tables, self._retention_hours

        def maintain(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                failures = [_maintained(tables, names[number.as_py()], hours) for number in batch["id"]]
                yield pa.RecordBatch.from_pydict({"failure": pa.array(failures, pa.string())})

        slots = max(1, self._spark.sparkContext.defaultParallelism // 4)
        try:
            numbers = self._spark.range(0, len(names), 1, min(slots, len(names)))
            failures = numbers.mapInArrow(maintain, "failure STRING").toArrow()["failure"].drop_null()
        except (PySparkException, *LOST_JVM) as error:
            _log.warning("maintenance failed: %s", reason_of(error))
            return
        for failure in failures.to_pylist():
            _log.warning("maintenance of %s", failure)

    def close(self) -> None:
        self._worker.shutdown()


def _maintained(tables: Maintainable, name: str, retention_hours: int) -> str | None:
    """Maintain one table; the failure in words, None if there is none. The tables are right without it."""
    try:
        tables.maintain(name, retention_hours)
    except (DeltaError, OSError) as error:
        return f"{name} failed: {error}"
    return None
