"""Delta tables: the files that executors write for them, and the commit that shows them.

A commit carries (query id, batch id) as Delta's application transaction, in the same atomic entry as the
files. A batch that a table has already is not committed again, whatever files a second try has written: those
belong to no table, and vacuum removes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from penstock.jobs.storage import Store
from penstock.model.errors import PenstockError

__all__ = [
    "INSTANT",
    "AlreadyThere",
    "DataFile",
    "DeltaTables",
    "Layout",
    "by_day",
    "has_batch",
    "timestamps",
    "write_part",
]

INSTANT: Final = pa.timestamp("us", "UTC")
#: Files have statistics of their first column. Unless the table says so, deltalake takes what has none for
#: empty, and its datasets pass such files over.
_ONLY_TIMES: Final[Any] = {"delta.dataSkippingNumIndexedCols": "1"}
#: commits that are looked through before all are
_RECENT: Final = 20
#: in a commit's metadata: the batch that it shows, and the plan that it follows
_BATCH: Final = "penstock.batch"
_PLAN: Final = "penstock.plan"
#: Readers know days of the years 1 to 9999 alone, and one other makes the whole table unreadable.
_DAY: Final = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")


class AlreadyThere(PenstockError):
    """A table that was to be made is there."""


class Layout(NamedTuple):
    """A table: its folder, the columns of its files, and the column by which it is partitioned.

    The first column has times. Files have statistics of it.
    """

    name: str
    columns: Any
    part: str
    part_type: Any

    @property
    def schema(self) -> Any:
        return pa.schema([*self.columns, (self.part, self.part_type)])


class DataFile(NamedTuple):
    """A file that was written for a table and is not in it yet."""

    table: str
    path: str
    size: int
    #: the value of the column by which the table is partitioned
    part: str
    rows: int
    low: str
    high: str


def timestamps(milliseconds: Any) -> Any:
    return pa.array(np.asarray(milliseconds, dtype=np.int64) * 1000).cast(INSTANT)


def by_day(rows: Any) -> Iterable[tuple[str, Any]]:
    """The rows of each day in the first column."""
    days = _instants(rows).astype("datetime64[D]")
    for day in np.unique(days):
        chosen = days == day
        yield str(day), rows if chosen.all() else rows.filter(pa.array(chosen))


def write_part(tables: Store, table: str, column: str, part: str, rows: Any) -> DataFile:
    """Write rows of one value of the column by which a table is partitioned, under a name of its own.

    Times must be of the years 1 to 9999.
    """
    times = _instants(rows)
    low, high = (f"{edge}Z" for edge in (times.min(), times.max()))
    assert _DAY.fullmatch(part) or part.isdecimal(), f"{part!r} is no {column} of {table}"
    assert _DAY.match(low) and _DAY.match(high), f"{table} cannot have times from {low} to {high}"
    path = f"{column}={part}/{uuid4().hex}.parquet"
    size = tables.write_parquet(f"{table}/{path}", rows)
    return DataFile(table, path, size, part, len(rows), low, high)


def _instants(rows: Any) -> Any:
    return rows.column(0).to_numpy().astype("datetime64[us]")


class DeltaTables:
    """The tables below one place, as the driver commits to them."""

    __slots__ = ("_root", "_storage_options")

    def __init__(self, root: str, storage_options: dict[str, str] | None = None) -> None:
        self._root = root
        self._storage_options = storage_options

    def find(self, name: str) -> DeltaTable | None:
        """The table in a folder as it is now; None if there is none."""
        try:
            return DeltaTable(f"{self._root}/{name}", storage_options=self._storage_options)
        except TableNotFoundError:
            return None

    def open_as(self, layout: Layout) -> DeltaTable:
        """The table as it is now; made if it is not there."""
        return self.find(layout.name) or self._made(layout, "ignore")

    def make(self, layout: Layout) -> None:
        """Make a table; AlreadyThere if it is there. Of several drivers at once, one succeeds."""
        try:
            self._made(layout, "error")
        except DeltaError as error:
            if self.find(layout.name) is None:
                raise
            raise AlreadyThere(f"there is a table in {self._root}/{layout.name} already") from error

    def _made(self, layout: Layout, mode: Literal["error", "ignore"]) -> DeltaTable:
        return DeltaTable.create(
            f"{self._root}/{layout.name}",
            layout.schema,
            mode=mode,
            partition_by=[layout.part],
            configuration=_ONLY_TIMES,
            storage_options=self._storage_options,
        )

    def show(
        self,
        layout: Layout,
        files: Iterable[DataFile],
        query_id: str,
        batch_id: int,
        removed: Mapping[str, str] | None = None,
        plan: str | None = None,
    ) -> bool:
        """Show the files of one batch; False, and nothing done, if this batch was shown before.

        `removed` are files that the batch replaces: their paths, and their values of `layout.part`. With a
        `plan`, a batch without files is committed as well, and `plan_of` finds the name.
        """
        opened = self.open_as(layout)
        if has_batch(opened, query_id, batch_id):
            return False
        _add_columns(opened, layout.columns)
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size, {layout.part: each.part}, now_ms, True, _stats(layout, each))
            for each in files
        ]
        actions += [
            RemoveAction(path, True, now_ms, partition_values={layout.part: part})
            for path, part in (removed or {}).items()
        ]
        if not actions and plan is None:
            return True
        named = {} if plan is None else {_BATCH: f"{query_id}/{batch_id}", _PLAN: plan}
        once = CommitProperties(app_transactions=[Transaction(query_id, batch_id)], custom_metadata=named)
        try:
            opened.create_write_transaction(
                actions, "append", opened.schema(), [layout.part], commit_properties=once
            )
        except CommitFailedError:
            # Another driver may have shown the batch since the table was opened: Delta takes each once.
            if has_batch(self.open_as(layout), query_id, batch_id):
                return False
            raise
        return True

    def plan_of(self, name: str, query_id: str, batch_id: int) -> str | None:
        """The plan that a table's commit of a batch names; None if the table does not have the batch."""
        opened = self.find(name)
        if opened is None or not has_batch(opened, query_id, batch_id):
            return None
        wanted = f"{query_id}/{batch_id}"
        for commits in (_RECENT, None):
            for commit in opened.history(commits):
                if commit.get(_BATCH) == wanted:
                    return str(commit[_PLAN])
        return None

    def tidy(self, name: str, retention_hours: int, *, compact: bool = True) -> None:
        """Put small files together, and remove those that no reader can still want."""
        opened = self.find(name)
        if opened is None:
            return
        if compact:
            opened.optimize.compact()
        opened.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False, full=True)
        opened.cleanup_metadata()


def has_batch(opened: DeltaTable, query_id: str, batch_id: int) -> bool:
    """Whether a table has a commit of a batch, or of a later one."""
    shown = opened.transaction_version(query_id)
    return shown is not None and shown >= batch_id


def _add_columns(opened: DeltaTable, columns: Any) -> None:
    """Give a table the columns, and fields of structures, that it lacks: its rows have null in them."""
    known = {field.name: field.type for field in pa.schema(opened.schema().to_arrow())}
    missing = [each for each in columns if known.get(each.name) != each.type]
    if missing:
        opened.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)


def _stats(layout: Layout, file: DataFile) -> str:
    """Statistics that let a reader skip a file: the number of rows and the range of times."""
    column = layout.columns.names[0]
    return json.dumps(
        {"numRecords": file.rows, "minValues": {column: file.low}, "maxValues": {column: file.high}}
    )
