"""The batch reader and the stream reader: they plan offsets and tasks, and run a task.

`partitions` is a pure function of offsets and options wherever Spark may call it twice; only the start and
end of a query are requested from the cluster. Spark calls `commit` one batch late and for the last one never,
and `stop` perhaps not at all, so neither is relied on.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.model.ids import TopicPartition
from penstock.reading.connection import Cluster, cluster_of
from penstock.reading.errors import DataLost
from penstock.reading.fetching import RangeReader
from penstock.reading.offsets import (
    LATEST,
    ListOffsets,
    Offsets,
    from_json,
    list_offsets,
    resolve,
    resolved,
    to_json,
)
from penstock.reading.planning import OffsetRange, check_order, limited, plan, ranges_between, within_log
from penstock.reading.selection import selected
from penstock.records.columnar import Wanted
from penstock.spark.archives import Backup, RangeTask, archived_records
from penstock.spark.filters import EVERYTHING, from_first, pushed
from penstock.spark.options import ReadOptions
from penstock.spark.rows import Rows, decoded_columns

__all__ = ["BatchReader", "FilteringReader", "RangeTask", "StreamReader"]

JsonOffsets: TypeAlias = dict[str, dict[str, int]]


class _RangeTasks:
    """Shared by both readers: planning tasks from ranges, and reading the range of a task."""

    #: what the filters of a query leave
    _pushed = EVERYTHING

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @property
    def _cluster(self) -> Cluster:
        return cluster_of(self._options.endpoint)

    def _parts(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        options = self._options
        return plan(ranges, min_partitions=options.min_partitions, max_records=options.max_records)

    def _tasks(self, ranges: Iterable[OffsetRange]) -> list[RangeTask]:
        """The tasks of ranges of a cluster; what an archive has of them is read from there."""
        parts, archive = self._parts(ranges), self._options.archive
        if archive is None or not parts:
            return [RangeTask(each.topic, each.partition, each.start, each.stop) for each in parts]
        # Imported where it is needed: most queries have no archive.
        from penstock.spark.tiered import tasks_with_archive

        return tasks_with_archive(self._cluster, archive.place, parts, committed=self._options.committed)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a worker; this object was sent there."""
        if not isinstance(partition, OffsetRange):
            # Spark's own: a query that has nothing to read gets one task all the same.
            return
        options = self._options
        rows = Rows(partition, self._schema, json=options.json_schema is not None, registry=options.registry)
        _spare_what_is_loaded()
        for records in self._records(partition):
            yield rows.of(records)

    def _records(self, task: OffsetRange) -> Iterator[Any]:
        """The columns of records: of brokers, of an archive, of brokers again, in the order of offsets."""
        part = task.part if isinstance(task, RangeTask) else None
        if part is None:
            yield from self._fetched(task, task.start, task.stop)
            return
        options = self._options
        yield from self._fetched(task, task.start, part.first)
        columns = decoded_columns(self._schema.fieldNames())
        # What the archive returns was compared with the checksums of its blocks.
        wanted = Wanted(range(part.first, part.stop), columns, self._pushed.times, verify=False)
        yield from archived_records(task, part, wanted, committed=options.committed)
        yield from self._fetched(task, part.stop, task.stop)

    def _fetched(self, task: OffsetRange, start: int, stop: int) -> Iterator[Any]:
        if start >= stop:
            return
        reader = RangeReader(
            self._cluster,
            OffsetRange(task.topic, task.partition, start, stop),
            committed=self._options.committed,
            fail_on_data_loss=self._options.fail_on_data_loss,
            columns=decoded_columns(self._schema.fieldNames()),
            times=self._pushed.times,
        )
        yield from reader.read()


@cache
def _spare_what_is_loaded() -> None:
    """Keep all that a worker has loaded by its first task out of garbage collections.

    PySpark runs a full one after each task: 20 ms, nearly all of them for modules, which stay anyway.
    """
    gc.freeze()


class BatchReader(_RangeTasks, DataSourceReader):
    """Reads from where the query starts to where it ends, both decided when it is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if options.archive is not None and options.archive.is_backup:
            backup = Backup(options.archive)
            ranges = self._ranges(backup.selected(options.selection), backup.list_offsets)
            return backup.tasks(self._parts(ranges), fail_on_data_loss=options.fail_on_data_loss)
        found = selected(self._cluster, options.selection)
        listed = partial(list_offsets, self._cluster, committed=options.committed)
        return self._tasks(self._ranges(found, listed))

    def _ranges(self, found: list[TopicPartition], listed: ListOffsets) -> list[OffsetRange]:
        """`listed` lists the offsets of a cluster or of a backup."""
        options = self._options
        start = resolved(options.starting, found, listed)
        end = resolved(options.ending, found, listed)
        check_order(start, end)
        named = {partition: at for partition, at in options.ending.exact.items() if at >= 0}
        # Readers of committed records wait for an open transaction, so the log's end counts for them, too.
        if options.endpoint.bootstrap:
            listed_ends = list_offsets(self._cluster, dict.fromkeys(named, LATEST), committed=False)
        else:
            listed_ends = listed(dict.fromkeys(named, LATEST))
        end |= within_log(named, listed_ends, is_refused=options.fail_on_data_loss)
        ranges = self._pushed.ranges(ranges_between(start, end))
        since_ms = self._pushed.since_ms
        if since_ms is None or not ranges:
            return ranges
        return from_first(ranges, listed({each.whose: since_ms for each in ranges}))


class FilteringReader(BatchReader):
    """Reads what the filters of the query leave of partitions and offsets. Spark applies them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pushed = pushed(filters)
        return filters


class StreamReader(_RangeTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch; lives in one process for as long as the query does.

    PySpark has no limit made of several, so minimum, maximum and delay are all applied in `latestOffset`.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(options, schema)
        self._clock = clock
        #: the end of all that an AvailableNow query reads
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        #: when rows were last let through; never yet
        self._last_batch_s = float("-inf")

    def initialOffset(self) -> JsonOffsets:
        cluster = self._cluster
        found = selected(cluster, self._options.selection)
        return to_json(resolve(cluster, self._options.starting, found, committed=self._options.committed))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log_ends({})

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Where the next batch ends: at `start` itself while there is too little to read."""
        begin = from_json(start)
        end = self._latest = self._log_ends(begin) if self._target is None else self._target
        if self._target is not None:
            # Partitions that came later are for the next run.
            end = {partition: max(at, begin.get(partition, 0)) for partition, at in end.items()}
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and self._waits(begin, end):
                return start
            if self._options.max_offsets is not None:
                end = limited(begin, end, self._options.max_offsets)
        return to_json(end)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """For the query's progress: its lag is up to here."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        return self._tasks(ranges_between(from_json(start), from_json(end)))

    def _waits(self, begin: Offsets, end: Offsets) -> bool:
        """Whether there are too few offsets for a batch, and the last one is not long ago."""
        if self._options.min_offsets is None:
            return False
        now_s = self._clock()
        if now_s - self._last_batch_s < self._options.max_delay_s:
            available = sum(each.size for each in ranges_between(begin, end))
            if available < self._options.min_offsets:
                return True
        self._last_batch_s = now_s
        return False

    def _log_ends(self, begin: Offsets) -> Offsets:
        cluster = self._cluster
        found = selected(cluster, self._options.selection, missing_is_error=self._options.fail_on_data_loss)
        ends = list_offsets(cluster, dict.fromkeys(found, LATEST), committed=self._options.committed)
        self._check_nothing_lost(begin, ends)
        return ends

    def _check_nothing_lost(self, begin: Offsets, ends: Offsets) -> None:
        if not self._options.fail_on_data_loss:
            return
        for partition, at in begin.items():
            end = ends.get(partition)
            if end is None:
                raise DataLost(
                    f"{partition} does not exist any more. Set failOnDataLoss=false to continue without it"
                )
            if end < at:
                raise DataLost(
                    f"{partition} ends at {end}, and {at} was reached before: the topic was created again, "
                    f"or "
                    "lost its end. Set failOnDataLoss=false to continue"
                )
