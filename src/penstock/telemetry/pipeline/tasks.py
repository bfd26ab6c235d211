"""The task of an executor for a range of virtual shards in one batch: state in; files and next state out.

A task may run twice, at the same time or after a crash: it writes under names of its own, and nothing that it
writes counts before the driver says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.admission import start_of
from penstock.telemetry.pipeline.columns import range_of_task
from penstock.telemetry.pipeline.detectors import SIGNALS, Alert, GpuDetectors, Signalled
from penstock.telemetry.pipeline.detectors.features import features
from penstock.telemetry.pipeline.names import DEAD_LETTERS
from penstock.telemetry.pipeline.publish import Topics, dead_letter_records
from penstock.telemetry.pipeline.shard import FOREVER_MS, ROWS, Counts, advance, close_all
from penstock.telemetry.pipeline.state import Kept, Segment, StateFiles, inherited
from penstock.telemetry.pipeline.tables import DataFile, write_files
from penstock.telemetry.pipeline.validate import validate
from penstock.telemetry.thresholds import Thresholds
from penstock.telemetry.workloads import WORKLOAD_LABELS

__all__ = ["ShardResult", "ShardTask", "run_on_spark"]

_RESULT_DDL: Final = "summary STRING, signals BINARY"


class ShardResult(NamedTuple):
    """The report of a task to the driver."""

    task: int
    #: of the messages that were read, those that are counted with this task's blocks
    read: int
    counts: Counts
    files: list[DataFile]
    state: Kept
    #: of single GPUs
    alerts: list[Alert]
    #: for the rules that compare GPUs
    signals: Any

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ShardResult:
        summary = json.loads(row["summary"])
        return cls(
            summary["task"],
            summary["read"],
            Counts(*summary["counts"]),
            [DataFile(*each) for each in summary["files"]],
            {name: [Segment(*each) for each in own] for name, own in summary["state"].items()},
            [Alert(*each) for each in summary["alerts"]],
            pa.ipc.open_stream(row["signals"]).read_all(),
        )

    def row(self) -> Any:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SIGNALS) as writer:
            writer.write_table(self.signals)
        summary = self._asdict()
        del summary["signals"]
        return pa.RecordBatch.from_pydict(
            {"summary": [json.dumps(summary)], "signals": [sink.getvalue().to_pybytes()]}
        )


@dataclass(frozen=True)
class ShardTask:
    """Runs on executors; the number of the partition says for which virtual shards."""

    tables: Store
    state: Store
    batch_id: int
    #: the number of tasks
    shards: int
    watermark_ms: int
    read_at_ms: int
    #: how far ahead of `read_at_ms` a sample may be
    ahead_ms: int
    #: the files of the state after the batch before, by the task that has written them
    before: list[Kept]
    topics: Topics | None
    thresholds: Thresholds
    #: close all windows
    closes: bool = False
    workload_labels: tuple[str, ...] = WORKLOAD_LABELS

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "runs in a task only"
        given = list(batches)
        streams = [rows.as_buffer() for batch in given for rows in batch["rows"] if rows.is_valid]
        blocks = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        # A task without rows has windows to close as well. Blocks of one partition have its order within.
        blocks.sort(key=_place)
        read = sum(sum(batch["read"].to_pylist()) for batch in given)
        yield self.run(context.partitionId(), pa.concat_tables([ROWS.empty_table(), *blocks]), read).row()

    def run(self, task: int, rows: Any, read: int) -> ShardResult:
        shards = range_of_task(task, self.shards)
        state = StateFiles(self.state, shards, inherited(self.before, shards))
        watermark_ms = FOREVER_MS if self.closes else self.watermark_ms
        before = state.load(None if self.closes else _window_starts(rows), watermark_ms)
        outcome = close_all(before) if self.closes else advance(before, rows, watermark_ms, self.read_at_ms)
        files = [
            file for table, found in outcome.rows.items() for file in write_files(self.tables, table, found)
        ]
        self._send_dead_letters(outcome.rows["dead_letters"])
        judged, rules = self._judge(state, outcome.taken)
        kept = state.keep(before, outcome, rules, watermark_ms, f"{self.batch_id}-{task}-{uuid4().hex}")
        return ShardResult(task, read, outcome.counts, files, kept, judged.alerts, judged.signals)

    def _judge(self, state: StateFiles, taken: Any) -> tuple[Signalled, Any | None]:
        """Alerts and signals, and the detectors' next state; None if it stays the same."""
        if not len(taken):
            return Signalled([], SIGNALS.empty_table()), None
        detectors = GpuDetectors(self.thresholds, state.rules())
        judged = detectors.advance(features(taken))
        return judged, detectors.memory.to_table()

    def _send_dead_letters(self, rows: Any) -> None:
        # Late samples are no dead letters: they are in the table, and nothing is wrong with them.
        refused = rows.filter(pc.not_equal(rows["reason"], "late"))
        if self.topics is not None and len(refused):
            self.topics.send(DEAD_LETTERS, dead_letter_records(refused))


def _place(block: Any) -> tuple[str, int, int]:
    return block["topic"][0].as_py(), block["partition"][0].as_py(), block["offset"][0].as_py()


def _window_starts(rows: Any) -> set[int]:
    return set(np.unique(start_of(rows["at"].drop_null().to_numpy())).tolist())


def dealt(blocks: DataFrame, tasks: int) -> DataFrame:
    """Stage 2 begins: each block in the partition of the task that its virtual shards belong to."""
    return blocks.repartitionById(tasks, "task")


def processed(blocks: DataFrame, task: ShardTask) -> DataFrame:
    """Stages 2 to 4: admission, rollups and rules of single GPUs; one row of results per task."""
    return blocks.mapInArrow(task, _RESULT_DDL)


def without_messages(spark: SparkSession, tasks: int) -> DataFrame:
    """A block without rows for each task, as for a closing."""
    return spark.range(0, tasks, 1, tasks).selectExpr("CAST(NULL AS BINARY) AS rows", "0 AS read")


def results_of(messages: DataFrame, task: ShardTask) -> DataFrame:
    """All stages of a batch, from messages of the connector to one row of results per task."""
    return (
        messages.transform(validate, task.shards, task.read_at_ms, task.ahead_ms, task.workload_labels)
        .transform(dealt, task.shards)
        .transform(processed, task)
    )


def run_on_spark(messages: DataFrame | None, task: ShardTask) -> list[ShardResult]:
    """Run a batch of `messages`; without messages, each task for its state alone."""
    if messages is None:
        found = without_messages(SparkSession.active(), task.shards).transform(processed, task)
    else:
        found = results_of(messages, task)
    return [ShardResult.of(row) for row in found.toArrow().to_pylist()]
