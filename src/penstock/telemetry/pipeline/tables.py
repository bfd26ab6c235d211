"""The Delta tables of the pipeline: their columns, and the day by which they are partitioned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from penstock.jobs.delta import INSTANT, DataFile, DeltaTables, Layout, by_day, timestamps, write_part
from penstock.jobs.storage import Store

__all__ = ["DAY", "TABLES", "TEXT", "DataFile", "Tables", "encoded", "timestamps", "write_files"]

DAY: Final = "day"
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
        ("window_start", INSTANT),
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
    "samples": pa.schema([("at", INSTANT), *_GPU, ("value", pa.float64()), *_SOURCE]),
    "dead_letters": pa.schema(
        [
            ("read_at", INSTANT),
            ("reason", pa.string()),
            *_SOURCE,
            ("raw", pa.binary()),
            ("gpu_id", pa.string()),
            ("field", pa.int32()),
            ("at", INSTANT),
            ("value", pa.float64()),
        ]
    ),
    "rollups_10s": _ROLLUP,
    "rollups_1m": _ROLLUP,
    "rollups_1h": _ROLLUP,
    "alerts": pa.schema(
        [
            ("at", INSTANT),
            ("rule", pa.string()),
            ("subject", pa.string()),
            ("state", pa.string()),
            ("severity", pa.string()),
            ("since", INSTANT),
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
            ("read_at", INSTANT),
            ("batch_id", pa.int64()),
            *((name, pa.int64()) for name in ("consumed", "valid", "dead_lettered", "duplicates", "late")),
            ("watermark", INSTANT),
        ]
    ),
}


_SQL_TYPES: Final = {
    "string": "STRING",
    "binary": "BINARY",
    "int32": "INT",
    "int64": "BIGINT",
    "double": "DOUBLE",
    str(INSTANT): "TIMESTAMP",
}


def encoded(table: str) -> Any:
    """The columns of a table as they are before they are written: texts are dictionary-encoded."""
    return pa.schema([(each.name, TEXT if each.type == pa.string() else each.type) for each in TABLES[table]])


def write_files(tables: Store, table: str, rows: Any) -> list[DataFile]:
    """One file for each day in `rows`, under names that no other try uses. Texts may be encoded, or not."""
    if not len(rows):
        return []
    assert rows.schema in (TABLES[table], encoded(table)), f"no rows of {table}: {rows.schema}"
    return [write_part(tables, table, DAY, day, part) for day, part in by_day(rows)]


class Tables(DeltaTables):
    """The tables below one place, as the driver commits to them."""

    __slots__ = ()

    @staticmethod
    def ddl(table: str) -> str:
        """The columns of a table as Spark's DDL."""
        return ", ".join(f"`{each.name}` {_SQL_TYPES[str(each.type)]}" for each in TABLES[table])

    def open(self, table: str) -> DeltaTable:
        """The table as it is now; made if it is not there."""
        return self.open_as(_layout(table))

    def commit(self, table: str, files: Iterable[DataFile], query_id: str, batch_id: int) -> bool:
        """Show the files of one batch; False, and nothing done, if this batch was shown before."""
        return self.show(_layout(table), files, query_id, batch_id)

    def maintain(self, table: str, retention_hours: int) -> None:
        """Put small files together, and remove those that no reader can still want."""
        self.open(table)
        self.tidy(table, retention_hours)


def _layout(table: str) -> Layout:
    return Layout(table, TABLES[table], DAY, pa.date32())
