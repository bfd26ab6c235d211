"""One batch of a table, from messages to committed tables: the order of effects that makes it exactly once.

    1  executors write files        under new names: not yet part of anything
    2  new columns are decided      if tasks have met some, 1 is done again with them
    3  the plan is kept             the files and columns of the batch, whatever a retry would have written
    4  rows are committed           with (query id, batch id), and with the name of the plan: this decides
    5  dead letters are committed   those of the plan that 4 has named; a second time does nothing
    6  the manifest is written      from here on the batch is done

A driver that dies before 3 runs the batch again from the beginning, after 3 it commits what the plan has. So
what retention, compaction of the topic or the registry change between two tries changes no batch: no message
is in both tables, and none in neither. Two drivers at one batch have a plan each, and Delta takes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn
from uuid import uuid4

import msgspec
import pyarrow as pa

from penstock.jobs.delta import DataFile, DeltaTables, has_batch
from penstock.jobs.ledger import Ledger, StateBroken
from penstock.jobs.storage import Store
from penstock.tables.definition import TableDefinition
from penstock.tables.judging import Judge
from penstock.tables.keys import KeyReader
from penstock.tables.layout import BUCKET, dead_letters_layout, fields_of, layout_of, place_of
from penstock.tables.plans import Plan, Plans, SparkBatch
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

#: how often a batch is read until its columns are known, and its tasks agree on its keys
_PASSES_MAX: Final = 8


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
    plans: Plans


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
        root = definition.root
        files, folder = (Store(each, storage_options) for each in (root, f"{root}/{definition.state}"))
        state = Store(f"{folder.uri}/state", storage_options)
        tables = DeltaTables(root, storage_options)
        self._places = _Places(files, folder, tables, Ledger(state), Plans(folder, state, files))
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
        before, places = self._manifest, self._places
        batch = places.plans.batch(batch_id)
        if before.checkpoint not in (None, batch.checkpoint):
            raise StateBroken(
                f"the checkpoint in {places.folder.uri} is not the one of its state: restore both together"
            )
        if not places.ledger.is_new(batch_id, before.batch_id):
            return
        topic_id = self._checked_topic_id()
        places.ledger.check_held()
        plan = self._shown(batch) or self._show(messages, batch)
        # From here on a driver that another has overtaken could bring back nothing but what it has done.
        places.ledger.check_held()
        places.tables.show(
            dead_letters_layout(self._definition), plan.result.dead_files, before.query_id, batch_id
        )
        after = _Manifest(
            query_id=before.query_id,
            batch_id=batch_id,
            checkpoint=batch.checkpoint,
            newest_ms=max(before.newest_ms, plan.result.newest_ms),
            topic_id=topic_id,
        )
        places.ledger.finish(batch_id, msgspec.json.encode(after), set())
        self._manifest = after
        self._report(self._reported(plan))

    def _shown(self, batch: SparkBatch) -> Plan | None:
        """The plan whose rows the table has; None if it has none of the batch.

        StateBroken if files of it are gone that no commit has shown.
        """
        definition, places = self._definition, self._places
        query_id = self._manifest.query_id
        name = places.tables.plan_of(definition.folder, query_id, batch.batch_id)
        if name is None:
            return None
        plan = places.plans.read(name, batch)
        dead = places.tables.find(definition.dead_letters)
        is_done = dead is not None and has_batch(dead, query_id, batch.batch_id)
        if not is_done and not places.plans.has_files(plan):
            raise StateBroken(f"files of batch {batch.batch_id} are gone, and its rows were committed")
        return plan

    def _show(self, messages: Any, batch: SparkBatch) -> Plan:
        """Commit rows; the plan that the table has then, which is that of another driver if it was faster."""
        definition, places = self._definition, self._places
        name, plan = places.plans.kept(batch) or self._planned(messages, batch)
        places.ledger.check_held()
        layout = layout_of(definition, fields_from_text(plan.fields))
        result = plan.result
        is_own = places.tables.show(
            layout, result.files, self._manifest.query_id, batch.batch_id, result.removed, name
        )
        return plan if is_own else self._shown(batch) or self._overtaken()

    def _overtaken(self) -> NoReturn:
        self._places.ledger.check_held()
        raise StateBroken(
            f"{self._definition.to} has later batches than its state in {self._places.folder.uri}: restore it"
        )

    def _planned(self, messages: Any, batch: SparkBatch) -> tuple[str, Plan]:
        """Run the tasks until all is dealt alike and nothing brings columns; keep what they have written."""
        read_at_ms, known = self._clock(), self._fields()
        fields, removed = known, self._before()
        for _ in range(_PASSES_MAX):
            results = self._run(messages, self._task(fields, removed), self._tasks)
            if len({each.dealt for each in results}) > 1:
                # Spark has read messages again, and they were dealt in another way.
                continue
            found = [fields_from_text(each.found) for each in results if each.found is not None]
            if not found:
                break
            fields = grown(fields, found)
        else:
            raise StateBroken(
                f"batch {batch.batch_id} brings other columns, or other keys, each time that it is read"
            )
        names = [field.name for field in known]
        plan = Plan(
            batch=batch,
            read_at_ms=read_at_ms,
            fields=fields_to_text(fields),
            columns=[field.name for field in fields if field.name not in names],
            result=_total(results),
        )
        return self._places.plans.keep(plan), plan

    def _task(self, fields: Any, before: dict[int, list[str]]) -> AppendTask | UpsertTask:
        definition = self._definition
        judge = Judge(
            place_of(definition),
            fields,
            self._decoders.values,
            KeyReader(is_binary=definition.key == "binary", decoder=self._decoders.keys),
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
        if self._manifest.batch_id >= 0 and self._places.plans.checkpoint() != self._manifest.checkpoint:
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

    def _reported(self, plan: Plan) -> Batch:
        result = plan.result
        return Batch(
            plan.batch.batch_id,
            result.read,
            result.rows,
            result.deleted,
            result.dead,
            result.newest_ms,
            plan.read_at_ms,
            plan.columns,
            dict(Counter(each.table for each in [*result.files, *result.dead_files])),
        )


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
