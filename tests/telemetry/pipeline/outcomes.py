"""What tests of disturbed runs share: the rows of a table in order, and a JVM that starts quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.telemetry.pipeline.tables import TABLES, Tables

__all__ = ["QUICK_JVM", "contents"]

#: A JVM that is killed within seconds need not optimise what it runs.
QUICK_JVM = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
#: the key of the rows of each table
KEYS = {
    "samples": ["partition", "offset"],
    "dead_letters": ["partition", "offset"],
    **{f"rollups_{width}": ["gpu_id", "field", "window_start"] for width in ("10s", "1m", "1h")},
    "alerts": ["batch_id", "rule", "subject", "state"],
    "batches": ["batch_id"],
}


def contents(tables: Path, table: str) -> list[dict[str, Any]]:
    """A table's rows in order, without the time at which they were read."""
    found = Tables(str(tables)).open(table).to_pyarrow_table(columns=TABLES[table].names)
    ordered = found.sort_by([(name, "ascending") for name in KEYS[table]])
    return [{k: v for k, v in row.items() if k != "read_at"} for row in ordered.to_pylist()]
