"""The Delta tables: their columns, the files that executors write for them, and the commit that shows them.

A commit carries (query id, batch id) as Delta's application transaction, in the same atomic entry as the
files. A batch that a table has already is not committed again, whatever files a second try has written: those
belong to no table, and vacuum removes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from penstock.telemetry.pipeline.storage import Store

__all__ = ["DAY", "TABLES", "TEXT", "DataFile", "Tables", "encoded", "timestamps", "write_files"]

DAY: Final = "day"
_INSTANT: Final = pa.timestamp("us", "UTC")
#: How texts that repeat are held in memory.
TEXT: Final = pa.dictionary(pa.int32(), pa.string())
_GPU: Final = [
    ("gpu_id", pa.string()),
    ("hostname", pa.string()),
    # its place in the host: such as nvidia3, and the PCI address
    ("device", pa.string()),
    ("pci_bus_id", pa.string()),
    ("model", pa.string()),
    ("workload", pa.string()),
    ("job", pa.string()),
    ("pod", pa.string()),
    ("namespace", pa.string()),
    ("field", pa.int32()),
    ("metric", pa.string()),
]
_SOURCE: Final = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
_ROLLUP: Final = pa.schema(
    [
        ("window_start", _INSTANT),
        *_GPU,
        ("count", pa.int64()),
        *(
            (name, pa.float64())
            for name in ("min", "max", "mean", "last", "p50", "p95", "increase", "covered_s")
        ),
    ]
)
#: The columns of each table, without the day by which it is partitioned; the first one determines the day.
TABLES: Final[dict[str, Any]] = {
    "samples": pa.schema([("at", _INSTANT), *_GPU, ("value", pa.float64()), *_SOURCE]),
    "dead_letters": pa.schema(
        [
            ("read_at", _INSTANT),
            ("reason", pa.string()),
            *_SOURCE,
            ("raw", pa.binary()),
            ("gpu_id", pa.string()),
            ("field", pa.int32()),
            ("at", _INSTANT),
            ("value", pa.float64()),
        ]
    ),
    "rollups_10s": _ROLLUP,
    "rollups_1m": _ROLLUP,
    "rollups_1h": _ROLLUP,
    "alerts": pa.schema(
        [
            ("at", _INSTANT),
            ("rule", pa.string()),
            ("subject", pa.string()),
            ("state", pa.string()),
            ("severity", pa.string()),
            ("since", _INSTANT),
            ("hostname", pa.string()),
            ("device", pa.string()),
            ("pci_bus_id", pa.string()),
            ("workload", pa.string()),
            ("job", pa.string()),
            ("pod", pa.string()),
            ("measure", pa.float64()),
            ("evidence", pa.string()),
            ("action", pa.string()),
            ("batch_id", pa.int64()),
        ]
    ),
    "batches": pa.schema(
        [
            ("read_at", _INSTANT),
            ("batch_id", pa.int64()),
            *((name, pa.int64()) for name in ("consumed", "valid", "dead_lettered", "duplicates", "late")),
            ("watermark", _INSTANT),
        ]
    ),
}


_SQL_TYPES: Final = {
    "string": "STRING",
    "binary": "BINARY",
    "int32": "INT",
    "int64": "BIGINT",
    "double": "DOUBLE",
    str(_INSTANT): "TIMESTAMP",
}
#: Files have statistics of their first column. Unless the table says so, deltalake takes what has none for
#: empty, and its datasets pass such files over.
_ONLY_TIMES: Final[Any] = {"delta.dataSkippingNumIndexedCols": "1"}


class DataFile(NamedTuple):
    """A file that was written for a table and is not in it yet."""

    table: str
    path: str
    size: int
    day: str
    rows: int
    low: str
    high: str


def timestamps(milliseconds: Any) -> Any:
    return pa.array(np.asarray(milliseconds, dtype=np.int64) * 1000).cast(_INSTANT)


def encoded(table: str) -> Any:
    """The columns of a table as they are before they are written: texts are dictionary-encoded."""
    return pa.schema([(each.name, TEXT if each.type == pa.string() else each.type) for each in TABLES[table]])


def write_files(tables: Store, table: str, rows: Any) -> list[DataFile]:
    """One file for each day in `rows`, under names that no other try uses. Texts may be encoded, or not."""
    if not len(rows):
        return []
    assert rows.schema in (TABLES[table], encoded(table)), f"no rows of {table}: {rows.schema}"
    instants = rows.column(0).to_numpy().astype("datetime64[us]")
    days = instants.astype("datetime64[D]")
    files = []
    for day in np.unique(days):
        chosen = days == day
        part, times = (rows, instants) if chosen.all() else (rows.filter(pa.array(chosen)), instants[chosen])
        path = f"{DAY}={day}/{uuid4().hex}.parquet"
        size = tables.write_parquet(f"{table}/{path}", part)
        low, high = (f"{edge}Z" for edge in (times.min(), times.max()))
        files.append(DataFile(table, path, size, str(day), len(part), low, high))
    return files


class Tables:
    """The tables below one place, as the driver commits to them."""

    __slots__ = ("_root", "_storage_options")

    def __init__(self, root: str, storage_options: dict[str, str] | None = None) -> None:
        self._root = root
        self._storage_options = storage_options

    @staticmethod
    def ddl(table: str) -> str:
        """The columns of a table as Spark's DDL."""
        return ", ".join(f"`{each.name}` {_SQL_TYPES[str(each.type)]}" for each in TABLES[table])

    def open(self, table: str) -> DeltaTable:
        """The table as it is now; made if it is not there."""
        uri = f"{self._root}/{table}"
        try:
            return DeltaTable(uri, storage_options=self._storage_options)
        except TableNotFoundError:
            schema = pa.schema([*TABLES[table], (DAY, pa.date32())])
            return DeltaTable.create(
                uri,
                schema,
                mode="ignore",
                partition_by=[DAY],
                configuration=_ONLY_TIMES,
                storage_options=self._storage_options,
            )

    def commit(self, table: str, files: Iterable[DataFile], query_id: str, batch_id: int) -> bool:
        """Show the files of one batch; False, and nothing done, if this batch was shown before."""
        opened = self.open(table)
        shown = opened.transaction_version(query_id)
        if shown is not None and shown >= batch_id:
            return False
        _add_columns(opened, table)
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        actions = [
            AddAction(each.path, each.size, {DAY: each.day}, now_ms, True, _stats(table, each))
            for each in files
        ]
        if actions:
            once = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
            opened.create_write_transaction(
                list(actions), "append", opened.schema(), [DAY], commit_properties=once
            )
        return True

    def maintain(self, table: str, retention_hours: int) -> None:
        """Put small files together, and remove those that no reader can still want."""
        opened = self.open(table)
        opened.optimize.compact()
        opened.vacuum(retention_hours, dry_run=False, enforce_retention_duration=False, full=True)
        opened.cleanup_metadata()


def _add_columns(opened: DeltaTable, table: str) -> None:
    """Give a table of an older version the columns that it lacks: its rows have null in them."""
    known = {field.name for field in opened.schema().fields}
    missing = [each for each in TABLES[table] if each.name not in known]
    if missing:
        opened.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)


def _stats(table: str, file: DataFile) -> str:
    """Statistics that let a reader skip a file: the number of rows and the range of times."""
    column = TABLES[table].names[0]
    return json.dumps(
        {"numRecords": file.rows, "minValues": {column: file.low}, "maxValues": {column: file.high}}
    )
