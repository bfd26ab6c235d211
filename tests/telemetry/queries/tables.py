"""Writes small tables for queries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.telemetry.pipeline.storage import Store
from penstock.telemetry.pipeline.tables import TABLES, Tables, timestamps, write_files


def write(place: Path, batch_id: int, *at_ms: int, field: int = 150) -> list[Path]:
    """Commit samples of these times, and say in which files they are."""
    count = len(at_ms)
    about = {"gpu_id": ["GPU-1"] * count, "field": [field] * count, "value": [float(at) for at in at_ms]}
    columns = [
        timestamps(at_ms)
        if field.name == "at"
        else pa.array(about.get(field.name, [None] * count), field.type)
        for field in TABLES["samples"]
    ]
    rows = pa.table(columns, schema=TABLES["samples"])
    files = write_files(Store(str(place)), "samples", rows)
    assert Tables(str(place)).commit("samples", files, "query", batch_id)
    return [place / "samples" / file.path for file in files]
