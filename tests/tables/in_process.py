"""Batches of a table in this process: what Spark does with tasks is tested where Spark is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from penstock.jobs.delta import INSTANT
from penstock.tables.batches import Batch, Decoders, TableBatches
from penstock.tables.dealing import BUCKET, dealt
from penstock.tables.definition import TableDefinition
from penstock.tables.opening import make
from penstock.tables.tasks import AppendTask, TaskResult, UpsertTask
from penstock.values.decoding import JsonDecoder

__all__ = [
    "MESSAGES",
    "START_S",
    "Message",
    "blocks",
    "definition",
    "new_batches",
    "result_of",
    "rows_of",
    "run_here",
    "shuffled",
    "value_of",
]

MESSAGES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
    ]
)
START_S = 1_760_000_000


class Message(NamedTuple):
    offset: int
    value: Any
    key: str | None = "k"
    partition: int = 0
    second: int | None = None


def value_of(value: Any) -> bytes | None:
    """Bytes as they are, other values as JSON; None is a tombstone."""
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def blocks(messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages as the connector has them."""
    times = [START_S + (each.offset if each.second is None else each.second) for each in messages]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([None if each.key is None else each.key.encode() for each in messages], pa.binary()),
            pa.array([value_of(each.value) for each in messages], pa.binary()),
            pa.array(["orders"] * len(messages), pa.string()),
            pa.array([each.partition for each in messages], pa.int32()),
            pa.array([each.offset for each in messages], pa.int64()),
            pa.array([second * 1_000_000 for second in times], pa.int64()).cast(INSTANT),
        ],
        schema=MESSAGES,
    )


def run_here(messages: Sequence[Message], task: AppendTask | UpsertTask, tasks: int) -> list[TaskResult]:
    """The tasks of a batch: one for each partition, or for the buckets of an upsert."""
    parts: list[list[Message]] = [[] for _ in range(tasks)]
    for each in messages:
        parts[each.partition % tasks].append(each)
    given = [[blocks(part[: len(part) // 2]), blocks(part[len(part) // 2 :])] for part in parts]
    if isinstance(task, UpsertTask):
        given = shuffled(given, task, tasks)
    return [result_of(task, part) for part in given]


def shuffled(given: list[list[pa.RecordBatch]], task: UpsertTask, tasks: int) -> list[list[pa.RecordBatch]]:
    """What comes to each task from readers of these blocks."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
    for blocks_of_reader in given:
        for block in dealt(filter(len, blocks_of_reader), task.judge.keys, task.buckets, tasks):
            for number, part in enumerate(parts):
                chosen = [bucket % tasks == number for bucket in block[BUCKET].to_pylist()]
                part.append(block.filter(pa.array(chosen)))
    return parts


def result_of(task: AppendTask | UpsertTask, given: Sequence[pa.RecordBatch]) -> TaskResult:
    (row,) = [text for made in task(iter(given)) for text in made["result"].to_pylist()]
    return msgspec.json.decode(row, type=TaskResult)


def definition(place: Path, **changes: Any) -> TableDefinition:
    fields: dict[str, Any] = {"topic": "orders", "mode": "append", "schema": "infer", "buckets": 3} | changes
    return TableDefinition(name="orders", id=uuid4().hex, to=str(place / "orders"), **fields).check()


def new_batches(
    table: TableDefinition,
    report: Callable[[Batch], None] = lambda batch: None,
    run: Any = run_here,
    *,
    makes: bool = True,
    topic_id: Callable[[], str | None] = lambda: None,
    decoders: Decoders | None = None,
) -> TableBatches:
    """The batches of a table, which is made first."""
    if makes:
        make(table)
    clock = iter(range(START_S * 1000, START_S * 2000))
    return TableBatches(
        table, decoders or Decoders(JsonDecoder()), lambda: next(clock), report, run=run, topic_id=topic_id
    )


def rows_of(place: str) -> list[dict[str, Any]]:
    """The rows of a Delta table in the order of partition and offset, without times."""
    rows: list[dict[str, Any]] = DeltaTable(place).to_pyarrow_table().to_pylist()
    hidden = ("_timestamp", "timestamp", "_day", "day", "_bucket")
    shown = [{name: value for name, value in row.items() if name not in hidden} for row in rows]
    return sorted(shown, key=lambda row: (row.get("_partition", 0), row.get("_offset", row.get("offset"))))
