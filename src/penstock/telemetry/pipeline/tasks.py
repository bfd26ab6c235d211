"""The task of an executor for one shard in one batch: state in; files of tables and the next state out.

A task may run twice, at the same time or after a crash: it writes under names of its own, and nothing that it
writes counts before the driver says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.telemetry.pipeline.detectors.features import FEATURES_SCHEMA, features
from penstock.telemetry.pipeline.publish import DEAD_LETTERS, Topics, dead_letter_records
from penstock.telemetry.pipeline.shard import ROWS, Counts, ShardState, advance, close_all
from penstock.telemetry.pipeline.storage import Store
from penstock.telemetry.pipeline.tables import DataFile, write_files
from penstock.telemetry.pipeline.validate import validate
from penstock.telemetry.workloads import WORKLOAD_LABELS

__all__ = ["ShardResult", "ShardTask", "run_on_spark"]

_RESULT_DDL: Final = "summary STRING, features BINARY"


class ShardResult(NamedTuple):
    """The report of a shard to the driver. `state` names the file of each table of the state."""

    shard: int
    #: of the messages that were read, those that are counted with this shard's blocks
    read: int
    counts: Counts
    files: list[DataFile]
    state: dict[str, str]
    features: Any

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ShardResult:
        told = json.loads(row["summary"])
        found = pa.ipc.open_stream(row["features"]).read_all()
        files = [DataFile(*each) for each in told["files"]]
        return cls(told["shard"], told["read"], Counts(*told["counts"]), files, told["state"], found)

    def row(self) -> Any:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FEATURES_SCHEMA) as writer:
            writer.write_table(self.features)
        told = ("shard", "read", "counts", "files", "state")
        summary = {name: getattr(self, name) for name in told}
        return pa.RecordBatch.from_pydict(
            {"summary": [json.dumps(summary)], "features": [sink.getvalue().to_pybytes()]}
        )


@dataclass(frozen=True)
class ShardTask:
    """Runs on executors, for the shard whose number is that of the partition."""

    tables: Store
    state: Store
    batch_id: int
    shards: int
    watermark_ms: int
    read_at_ms: int
    #: how far ahead of `read_at_ms` a sample may be
    ahead_ms: int
    #: by shard: the files of its state after the batch before
    before: dict[int, dict[str, str]]
    topics: Topics | None
    #: close all windows
    closes: bool = False
    workload_labels: tuple[str, ...] = WORKLOAD_LABELS

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None, "runs in a task only"
        given = list(batches)
        streams = [rows.as_buffer() for batch in given for rows in batch["rows"] if rows.is_valid]
        blocks = [pa.ipc.open_stream(stream).read_all() for stream in streams]
        # A shard without rows has windows to close as well. Blocks of one partition have its order within.
        blocks.sort(key=_place)
        read = sum(sum(batch["read"].to_pylist()) for batch in given)
        yield self.run(context.partitionId(), pa.concat_tables([ROWS.empty_table(), *blocks]), read).row()

    def run(self, shard: int, rows: Any, read: int) -> ShardResult:
        paths = self.before.get(shard, {})
        tables = {name: self.state.read_table(path) for name, path in paths.items()}
        before = ShardState.of(tables) if tables else ShardState()
        outcome = (
            close_all(before) if self.closes else advance(before, rows, self.watermark_ms, self.read_at_ms)
        )
        files = [
            file for table, found in outcome.rows.items() for file in write_files(self.tables, table, found)
        ]
        self._send_dead_letters(outcome.rows["dead_letters"])
        state = self._keep(shard, outcome.state, before, paths)
        return ShardResult(shard, read, outcome.counts, files, state, features(outcome.taken))

    def _keep(
        self, shard: int, state: ShardState, before: ShardState, paths: dict[str, str]
    ) -> dict[str, str]:
        kept, attempt = dict(paths), uuid4().hex
        for name, table in state.tables(before).items():
            kept[name] = f"{self.batch_id}-{shard}-{attempt}-{name}.arrow"
            self.state.write_table(kept[name], table)
        return kept

    def _send_dead_letters(self, rows: Any) -> None:
        # Late samples are no dead letters: they are in the table, and nothing is wrong with them.
        refused = rows.filter(pc.not_equal(rows["reason"], "late"))
        if self.topics is not None and len(refused):
            self.topics.send(DEAD_LETTERS, dead_letter_records(refused))


def _place(block: Any) -> tuple[str, int, int]:
    return block["topic"][0].as_py(), block["partition"][0].as_py(), block["offset"][0].as_py()


def run_on_spark(messages: DataFrame | None, task: ShardTask) -> list[ShardResult]:
    """Run `task` for every shard of the connector's `messages`; without messages, for every shard alone."""
    if messages is None:
        nothing = SparkSession.active().range(0, task.shards, 1, task.shards)
        shards = nothing.selectExpr("CAST(NULL AS BINARY) AS rows", "0 AS read")
        return [ShardResult.of(row) for row in shards.mapInArrow(task, _RESULT_DDL).toArrow().to_pylist()]
    blocks = validate(messages, task.shards, task.read_at_ms, task.ahead_ms, task.workload_labels)
    found = blocks.repartitionById(task.shards, "shard").mapInArrow(task, _RESULT_DDL).toArrow()
    return [ShardResult.of(row) for row in found.to_pylist()]
