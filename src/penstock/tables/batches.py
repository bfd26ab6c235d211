"""One batch of a table, from messages to committed tables: the order of effects that makes it exactly once.

    1  executors write files        under new names: not yet part of anything
    2  new columns are decided      if tasks have met some, 1 is done again with them
    3  the plan is kept             the files and columns of the batch, whatever a retry would have written
    4  dead letters are committed   with (query id, batch id): a second time does nothing
    5  rows are committed           likewise
    6  the manifest is written      from here on the batch is done

A driver that dies before 3 runs the batch again from the beginning, after 3 it commits what the plan has. So
what retention, compaction of the topic or the registry change between two tries changes no batch: no message
is in both tables, and none in neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa

from penstock.jobs.delta import DataFile, DeltaTables
from penstock.jobs.ledger import Ledger, StateBroken
from penstock.jobs.storage import Store
from penstock.tables.definition import TableDefinition
from penstock.tables.judging import Judge
from penstock.tables.layout import BUCKET, dead_letters_layout, fields_of, layout_of, place_of
from penstock.tables.tasks import (
    AppendTask,
    Run,
    TaskResult,
    UpsertTask,
    fields_from_text,
    fields_to_text,
    grown,
    run_on_spark,
)
from penstock.values.decoding import Decoder

__all__ = ["Batch", "Decoders", "TableBatches"]

#: how often the columns of a batch may grow before it has all
_PASSES_MAX: Final = 8
_CHECKPOINT: Final = "checkpoint/metadata"


class Decoders(NamedTuple):
    """Of values, and of keys that are not text or bytes."""

    values: Decoder
    keys: Decoder | None = None


class Batch(NamedTuple):
    """The report of a batch, for progress output and metrics."""

    batch_id: int
    read: int
    rows: int
    deleted: int
    dead: int
    newest_ms: int
    read_at_ms: int
    #: columns that the batch has brought
    columns: list[str]
    #: how many files the batch has added, by the folder of the table
    files: Mapping[str, int]


class _Plan(msgspec.Struct, kw_only=True):
    """What a batch shows."""

    batch_id: int
    #: Spark's id of the checkpoint that says which messages the batch has
    checkpoint: str | None = None
    read_at_ms: int
    #: the columns of values
    fields: str
    columns: list[str]
    result: TaskResult


class _Manifest(msgspec.Struct, kw_only=True):
    """What the query has done."""

    query_id: str
    batch_id: int = -1
    #: Spark's id of the checkpoint that belongs to this state
    checkpoint: str | None = None
    newest_ms: int = 0
    #: of the topic whose messages the table has; None where the cluster has no topic ids
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Places:
    files: Store
    #: what the query remembers, in whole
    folder: Store
    tables: DeltaTables
    ledger: Ledger


class TableBatches:
    """Runs batches of one table, one after the other. Give `process` to `foreachBatch`.

    `run` is what knows Spark: messages are whatever it takes.
    """

    def __init__(
        self,
        definition: TableDefinition,
        decoders: Decoders,
        clock: Callable[[], int],
        report: Callable[[Batch], None] = lambda report: None,
        *,
        tasks: int = 2,
        run: Run = run_on_spark,
        storage_options: dict[str, str] | None = None,
        topic_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        root, state = definition.root, f"{definition.root}/{definition.state}"
        self._places = _Places(
            Store(root, storage_options),
            Store(state, storage_options),
            DeltaTables(root, storage_options),
            Ledger(Store(f"{state}/state", storage_options)),
        )
        self._state = Store(f"{state}/state", storage_options)
        self._definition = definition
        self._decoders = decoders
        self._clock = clock
        self._report = report
        self._tasks = tasks
        self._run = run
        self._topic_id = topic_id
        self._manifest = self._load()

    @property
    def last_batch(self) -> int:
        return self._manifest.batch_id

    def process(self, messages: Any, batch_id: int) -> None:
        """Run a batch; nothing happens if it was done before."""
        before = self._manifest
        checkpoint = self._checkpoint()
        if before.checkpoint not in (None, checkpoint):
            raise StateBroken(
                f"the checkpoint in {self._places.folder.uri} is not the one of its state: "
                "restore both together"
            )
        if not self._places.ledger.is_new(batch_id, before.batch_id):
            return
        topic_id = self._checked_topic_id()
        self._places.ledger.check_held()
        plan = self._kept(batch_id, checkpoint) or self._planned(messages, batch_id, checkpoint)
        self._places.ledger.check_held()
        self._commit(plan)
        after = _Manifest(
            query_id=before.query_id,
            batch_id=batch_id,
            checkpoint=checkpoint,
            newest_ms=max(before.newest_ms, plan.result.newest_ms),
            topic_id=topic_id,
        )
        self._places.ledger.finish(batch_id, msgspec.json.encode(after), set())
        self._manifest = after
        self._report(self._reported(plan))

    def _planned(self, messages: Any, batch_id: int, checkpoint: str | None) -> _Plan:
        """Run the tasks until no values bring other columns, and keep what they have written."""
        read_at_ms, known = self._clock(), self._fields()
        fields, removed = known, self._before()
        for _ in range(_PASSES_MAX):
            results = self._run(messages, self._task(fields, removed), self._tasks)
            found = [fields_from_text(each.found) for each in results if each.found is not None]
            if not found:
                break
            fields = grown(fields, found)
        else:
            raise StateBroken(f"batch {batch_id} brings other columns each time that it is read")
        names = [field.name for field in known]
        plan = _Plan(
            batch_id=batch_id,
            checkpoint=checkpoint,
            read_at_ms=read_at_ms,
            fields=fields_to_text(fields),
            columns=[field.name for field in fields if field.name not in names],
            result=_total(results),
        )
        self._state.write(_plan_of(batch_id), msgspec.json.encode(plan))
        return plan

    def _kept(self, batch_id: int, checkpoint: str | None) -> _Plan | None:
        """The plan of an earlier try; None if there is none, or if its files are not there any more.

        Why: vacuum removes files that no commit has shown for a day.
        """
        path = _plan_of(batch_id)
        if not self._state.exists(path):
            return None
        plan = msgspec.json.decode(self._state.read(path), type=_Plan)
        if plan.checkpoint != checkpoint:
            raise StateBroken(
                f"batch {batch_id} has a plan of another checkpoint in {self._places.folder.uri}: "
                "restore that checkpoint, or delete the table with its data"
            )
        files = [*plan.result.files, *plan.result.dead_files]
        if all(self._places.files.exists(f"{each.table}/{each.path}") for each in files):
            return plan
        if self._is_shown(batch_id):
            raise StateBroken(f"files of batch {batch_id} are gone, and one of its tables was committed")
        self._state.delete(path)
        return None

    def _is_shown(self, batch_id: int) -> bool:
        """Whether a table has a commit of the batch."""
        for folder in (self._definition.folder, self._definition.dead_letters):
            opened = self._places.tables.find(folder)
            shown = None if opened is None else opened.transaction_version(self._manifest.query_id)
            if shown is not None and shown >= batch_id:
                return True
        return False

    def _commit(self, plan: _Plan) -> None:
        tables, query_id, result = self._places.tables, self._manifest.query_id, plan.result
        tables.show(dead_letters_layout(self._definition), result.dead_files, query_id, plan.batch_id)
        layout = layout_of(self._definition, fields_from_text(plan.fields))
        tables.show(layout, result.files, query_id, plan.batch_id, result.removed)

    def _task(self, fields: Any, before: dict[int, list[str]]) -> AppendTask | UpsertTask:
        definition = self._definition
        judge = Judge(
            place_of(definition),
            fields,
            self._decoders.values,
            self._decoders.keys,
            evolves=definition.evolves,
            upserts=definition.mode == "upsert",
        )
        layouts = layout_of(definition, fields), dead_letters_layout(definition)
        if definition.mode == "append":
            return AppendTask(self._places.files, judge, *layouts)
        return UpsertTask(self._places.files, judge, *layouts, buckets=definition.buckets, before=before)

    def _fields(self) -> Any:
        """The columns of values that the table has."""
        opened = self._places.tables.find(self._definition.folder)
        if opened is None:
            raise StateBroken(f"there is no table at {self._definition.to} any more")
        return fields_of(opened.schema().to_arrow())

    def _before(self) -> dict[int, list[str]]:
        """The files of an upsert table, by bucket."""
        found: dict[int, list[str]] = {}
        opened = self._places.tables.find(self._definition.folder)
        if self._definition.mode == "append" or opened is None:
            return found
        actions = pa.table(opened.get_add_actions(flatten=True))
        buckets = actions[f"partition.{BUCKET}"].to_pylist()
        for path, bucket in zip(actions["path"].to_pylist(), buckets, strict=True):
            found.setdefault(int(bucket), []).append(path)
        return found

    def _checkpoint(self) -> str | None:
        """Spark's id of the checkpoint; None before there is one."""
        folder = self._places.folder
        if not folder.exists(_CHECKPOINT):
            return None
        found: dict[str, str] = msgspec.json.decode(folder.read(_CHECKPOINT))
        return found["id"]

    def _checked_topic_id(self) -> str | None:
        """The topic's id; StateBroken if the table has messages of another topic of this name."""
        found, known = self._topic_id(), self._manifest.topic_id
        if None not in (found, known) and found != known:
            raise StateBroken(
                f"the topic {self._definition.topic} was created again: delete the table with --data "
                "and create it again"
            )
        return found or known

    def check(self) -> None:
        """StateBroken if the topic is another one, or Spark would begin again where the state is further."""
        self._checked_topic_id()
        if self._manifest.batch_id >= 0 and self._checkpoint() != self._manifest.checkpoint:
            raise StateBroken(
                f"the checkpoint in {self._places.folder.uri} is missing or another one, and the state "
                f"has batch {self._manifest.batch_id}: restore it, or delete the table with its data"
            )

    def _load(self) -> _Manifest:
        text = self._places.ledger.newest()
        if text is not None:
            return msgspec.json.decode(text, type=_Manifest)
        opened = self._places.tables.find(self._definition.folder)
        if opened is None:
            raise StateBroken(f"there is no table at {self._definition.to}: create it")
        if len(pa.table(opened.get_add_actions())):
            raise StateBroken(
                f"{self._definition.to} has rows, and {self._places.folder.uri} has no state of them: "
                "restore it, or delete the table with its data"
            )
        first = _Manifest(query_id=uuid4().hex)
        # The query's id must be known before anything is committed under it.
        self._places.ledger.begin(first.batch_id, msgspec.json.encode(first))
        return first

    def _reported(self, plan: _Plan) -> Batch:
        result = plan.result
        return Batch(
            plan.batch_id,
            result.read,
            result.rows,
            result.deleted,
            result.dead,
            result.newest_ms,
            plan.read_at_ms,
            plan.columns,
            dict(Counter(each.table for each in [*result.files, *result.dead_files])),
        )


def _plan_of(batch_id: int) -> str:
    return f"plan-{batch_id}.json"


def _total(results: list[TaskResult]) -> TaskResult:
    files: list[DataFile] = [file for each in results for file in each.files]
    dead_files = [file for each in results for file in each.dead_files]
    total = TaskResult(files=files, dead_files=dead_files)
    for each in results:
        total.removed |= each.removed
        total.newest_ms = max(total.newest_ms, each.newest_ms)
        for name in ("read", "rows", "deleted", "dead"):
            setattr(total, name, getattr(total, name) + getattr(each, name))
    return total
