"""Writes small tables for queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.pipeline.tables import TABLES, Tables, timestamps, write_files
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.small_fleet import BEGIN_MS

NOW_MS = BEGIN_MS + 600_000


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


def tables_of(place: Path, *samples: dict[str, Any]) -> TableReader:
    """Tables of one batch that was read at NOW_MS; samples have a GPU, a time and values by field."""
    settings = Settings(load_thresholds(), shards=2)
    batches = Batches(str(place), str(place / "_state"), settings, clock=lambda: NOW_MS, run_shards=run_here)
    rows: list[dict[str, Any]] = []
    for sample in samples:
        about = {"hostname": "host-1", "workload": "train", "reason": None, "topic": "t", "partition": 0}
        about |= {name: sample[name] for name in ("gpu_id", "hostname", "model", "at") if name in sample}
        for field, value in sample["values"].items():
            rows.append({**about, "field": field, "value": value, "offset": len(rows)})
    batches.process(rows, 0)
    batches.close()
    return TableReader(str(place))
