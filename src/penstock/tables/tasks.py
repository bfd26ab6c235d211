"""The tasks of a batch on executors: messages in; files, dead letters and new columns out.

A task may run twice, at the same time or after a crash: it writes under names of its own, and nothing that it
writes counts before the driver says so. A task that meets new columns writes nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.jobs.delta import DataFile, Layout, by_day, write_part
from penstock.jobs.storage import Store
from penstock.tables.dealing import BUCKET, dealt, received
from penstock.tables.judging import Judge, Judged
from penstock.tables.keys import KeyReader
from penstock.tables.layout import RESERVED
from penstock.tables.upserting import next_rows, with_columns
from penstock.values.types import added, unified

__all__ = [
    "AppendTask",
    "TaskResult",
    "UpsertTask",
    "fields_from_text",
    "fields_to_text",
    "grown",
    "run_on_spark",
]

_MESSAGE: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
_MESSAGE_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)
_KEYED_DDL: Final = f"{_MESSAGE_DDL}, key_name BINARY, key_reason STRING, bucket INT"
_RESULT_DDL: Final = "result STRING"


class TaskResult(msgspec.Struct, kw_only=True):
    """The report of a task to the driver."""

    read: int = 0
    rows: int = 0
    deleted: int = 0
    dead: int = 0
    newest_ms: int = 0
    files: list[DataFile] = []
    dead_files: list[DataFile] = []
    #: files that are replaced: path, and the bucket
    removed: dict[str, str] = {}
    #: the columns of values, if they must grow first
    found: str | None = None
    #: of what was dealt to all tasks of an upsert: the same of each task, or messages may be doubled or lost
    dealt: str | None = None


def fields_to_text(fields: Any) -> str:
    """A structure as text."""
    return b64encode(pa.schema(list(fields)).serialize().to_pybytes()).decode()


def fields_from_text(text: str) -> Any:
    return pa.struct(list(pa.ipc.read_schema(pa.py_buffer(b64decode(text)))))


def grown(known: Any, found: Iterable[Any]) -> Any:
    """The columns of values with all that tasks have found, in their order."""
    union: Any = None
    for each in found:
        union = each if union is None else unified(union, each)
    return known if union is None else added(known, union, RESERVED)


@dataclass(frozen=True)
class _Task:
    """Shared by both tasks."""

    files: Store
    judge: Judge
    table: Layout
    dead_letters: Layout

    def _written(self, result: TaskResult, judged: list[Judged]) -> None:
        """Write the dead letters, and count."""
        dead = pa.concat_tables([each.dead_letters for each in judged])
        result.dead = len(dead)
        result.dead_files = _by_day(self.files, self.dead_letters, dead)
        for each in judged:
            result.deleted += sum(each.deletes)
            result.rows += len(each.rows) - sum(each.deletes)
            result.newest_ms = max(result.newest_ms, each.newest_ms)


@dataclass(frozen=True)
class AppendTask(_Task):
    """Each message that is no dead letter becomes a row."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        result, judged, found = TaskResult(), list[Judged](), list[Any]()
        for batch in filter(len, batches):
            result.read += len(batch)
            each = self.judge.judge(batch)
            (found if len(each.found) else judged).append(each.found if len(each.found) else each)
        if found:
            result.found = fields_to_text(grown(self.judge.fields, found))
        elif judged:
            self._written(result, judged)
            rows = pa.concat_tables([each.rows for each in judged])
            result.files = _by_day(self.files, self.table, rows)
        yield _row(result)


@dataclass(frozen=True)
class UpsertTask(_Task):
    """The messages of a task's buckets replace the rows with their keys. It takes what `dealt` gives."""

    buckets: int
    #: the files of each bucket
    before: Mapping[int, list[str]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        given = received(batches)
        if given is None:
            yield _row(TaskResult())
            return
        result = TaskResult(read=len(given.messages), dealt=given.digest)
        judged = {bucket: self.judge.judge(own, keys) for bucket, own, keys in given.by_bucket()}
        found = [each.found for each in judged.values() if len(each.found)]
        if found:
            result.found = fields_to_text(grown(self.judge.fields, found))
        elif judged:
            self._written(result, list(judged.values()))
            for bucket, each in judged.items():
                if len(each.rows):
                    self._replace(result, bucket, each)
        yield _row(result)

    def _replace(self, result: TaskResult, bucket: int, judged: Judged) -> None:
        """Write the next file of a bucket."""
        paths = self.before.get(bucket, [])
        schema = self.table.columns
        before = [
            with_columns(self.files.read_parquet(f"{self.table.name}/{path}"), schema) for path in paths
        ]
        rows = next_rows(pa.concat_tables([schema.empty_table(), *before]), judged.rows, judged.deletes)
        if len(rows):
            result.files.append(
                write_part(self.files, self.table.name, self.table.part, str(bucket), rows.combine_chunks())
            )
        result.removed |= dict.fromkeys(paths, str(bucket))


class Run(Protocol):
    """Runs a task over the messages of a batch."""

    def __call__(self, messages: Any, task: AppendTask | UpsertTask, tasks: int) -> list[TaskResult]: ...


def run_on_spark(messages: DataFrame, task: AppendTask | UpsertTask, tasks: int) -> list[TaskResult]:
    """Run a batch on executors; an upsert in `tasks` tasks."""
    chosen = messages.select(*_MESSAGE)
    if isinstance(task, UpsertTask):
        chosen = _dealt(chosen, tasks, task.judge.keys, task.buckets)
    found = chosen.mapInArrow(task, _RESULT_DDL).toArrow()
    return [msgspec.json.decode(text, type=TaskResult) for text in found["result"].to_pylist()]


def _dealt(messages: DataFrame, tasks: int, keys: KeyReader, buckets: int) -> DataFrame:
    """The messages of each bucket in one partition."""

    def deal(batches: Iterator[Any]) -> Iterator[Any]:
        return dealt(batches, keys, buckets, tasks)

    given = messages.mapInArrow(deal, _KEYED_DDL)
    return given.repartitionById(tasks, F.pmod(given[BUCKET], F.lit(tasks)))


def _by_day(files: Store, layout: Layout, rows: Any) -> list[DataFile]:
    if not len(rows):
        return []
    whole = rows.combine_chunks()
    return [write_part(files, layout.name, layout.part, day, part) for day, part in by_day(whole)]


def _row(result: TaskResult) -> Any:
    return pa.RecordBatch.from_pydict({"result": [msgspec.json.encode(result).decode()]})
