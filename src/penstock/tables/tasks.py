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
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.jobs.delta import DataFile, Layout, by_day, write_part
from penstock.jobs.storage import Store
from penstock.tables.judging import Judge, Judged
from penstock.tables.keys import KeyReader, ReadKeys
from penstock.tables.layout import RESERVED
from penstock.tables.upserting import bucket_of, next_rows, with_columns
from penstock.values.types import added, unified

__all__ = [
    "AppendTask",
    "TaskResult",
    "UpsertTask",
    "fields_from_text",
    "fields_to_text",
    "grown",
    "keyed",
    "run_on_spark",
]

_MESSAGE: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
_MESSAGE_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)
#: The key of a message is read once: what it is decides which task has the message.
_KEY_NAME: Final = "key_name"
_KEY_REASON: Final = "key_reason"
_BUCKET: Final = "bucket"
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
    """The messages of a task's buckets replace the rows with their keys. It takes `keyed` messages."""

    buckets: int
    #: the files of each bucket
    before: Mapping[int, list[str]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        given = [batch for batch in batches if len(batch)]
        if not given:
            yield _row(TaskResult())
            return
        # Blocks of several tasks come in any order.
        messages = pa.Table.from_batches(given).sort_by([("partition", "ascending"), ("offset", "ascending")])
        result = TaskResult(read=len(messages))
        buckets = messages[_BUCKET].to_numpy()
        judged = {}
        for bucket in np.unique(buckets).tolist():
            own = messages.filter(pa.array(buckets == bucket)).combine_chunks()
            keys = ReadKeys(own[_KEY_NAME].to_pylist(), own[_KEY_REASON].to_pylist())
            judged[bucket] = self.judge.judge(own, keys)
        found = [each.found for each in judged.values() if len(each.found)]
        if found:
            result.found = fields_to_text(grown(self.judge.fields, found))
        else:
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


def keyed(messages: Any, keys: KeyReader, buckets: int) -> Any:
    """A block with the names of its keys, and with the bucket of each message."""
    raw = messages["key"].to_pylist()
    read = keys.read(raw)
    # A message whose key has no name becomes a dead letter, wherever.
    numbers = [
        bucket_of(key if name is None else name, buckets) for key, name in zip(raw, read.names, strict=True)
    ]
    columns = [
        pa.array(read.names, pa.binary()),
        pa.array(read.reasons, pa.string()),
        pa.array(numbers, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(
        [*messages.columns, *columns], [*messages.schema.names, _KEY_NAME, _KEY_REASON, _BUCKET]
    )


def _dealt(messages: DataFrame, tasks: int, keys: KeyReader, buckets: int) -> DataFrame:
    """The messages of each bucket in one partition."""

    def with_keys(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield keyed(batch, keys, buckets)

    dealt = messages.mapInArrow(with_keys, _KEYED_DDL)
    return dealt.repartitionById(tasks, dealt[_BUCKET] % tasks)


def _by_day(files: Store, layout: Layout, rows: Any) -> list[DataFile]:
    if not len(rows):
        return []
    whole = rows.combine_chunks()
    return [write_part(files, layout.name, layout.part, day, part) for day, part in by_day(whole)]


def _row(result: TaskResult) -> Any:
    return pa.RecordBatch.from_pydict({"result": [msgspec.json.encode(result).decode()]})
