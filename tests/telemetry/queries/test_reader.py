"""Reading tables: snapshots that are renewed in time, and only the files of a span."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.queries.reader import Measure, TableReader
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, ROLLUPS, Piece, Span
from tests.telemetry.queries.tables import write
from tests.telemetry.small_fleet import BEGIN_MS, MINUTES

ALL = Span(0, 1 << 50)
COLUMNS = ["at", "gpu_id", "value"]


def values(reader: TableReader, span: Span = ALL) -> list[float]:
    return sorted(reader.read("samples", span, COLUMNS)["value"].to_pylist())


def test_tables_that_are_not_there_are_empty(tmp_path: Path) -> None:
    reader = TableReader(str(tmp_path / "nowhere"))
    assert not reader.exists()
    assert reader.extent() is None
    assert values(reader) == []
    assert reader.cover(Span(0, HOUR_MS)) == [Piece(ROLLUPS[-1], Span(0, HOUR_MS))]


def test_a_table_without_rows(tmp_path: Path) -> None:
    Tables(str(tmp_path)).open("samples")
    reader = TableReader(str(tmp_path))
    assert reader.exists()
    assert reader.extent() is None
    assert values(reader) == []


def test_bounds_are_those_of_the_span(tmp_path: Path) -> None:
    write(tmp_path, 0, 1000, 2000, 3000)
    reader = TableReader(str(tmp_path))
    assert reader.extent() == Span(1000, 3001)
    assert values(reader, Span(1000, 3000)) == [1000.0, 2000.0]
    assert values(reader, Span(1001, 3001)) == [2000.0, 3000.0]


def test_files_of_other_times_are_not_opened(tmp_path: Path) -> None:
    (first,) = write(tmp_path, 0, 1000)
    write(tmp_path, 1, 5000)
    (_, other_day) = write(tmp_path, 2, 6000, DAY_MS)
    first.unlink()
    other_day.unlink()
    reader = TableReader(str(tmp_path))
    assert values(reader, Span(5000, 7000)) == [5000.0, 6000.0]
    with pytest.raises(FileNotFoundError):
        values(reader)


def test_snapshots_are_renewed_when_they_are_old(tmp_path: Path) -> None:
    now = [0.0]
    reader = TableReader(str(tmp_path), max_age_s=1.0, clock=lambda: now[0])
    write(tmp_path, 0, 1000)
    assert values(reader) == [1000.0]
    write(tmp_path, 1, 2000)
    now[0] = 0.9
    assert values(reader) == [1000.0]
    now[0] = 1.0
    assert values(reader) == [1000.0, 2000.0]
    assert reader.extent() == Span(1000, 2001)


def test_a_table_that_was_made_anew(tmp_path: Path) -> None:
    now = [0.0]
    reader = TableReader(str(tmp_path), max_age_s=1.0, clock=lambda: now[0])
    write(tmp_path, 0, 1000)
    write(tmp_path, 1, 2000)
    assert values(reader) == [1000.0, 2000.0]
    shutil.rmtree(tmp_path / "samples")
    write(tmp_path, 0, 7000)
    assert values(reader) == [7000.0]


def test_compaction_changes_nothing(tmp_path: Path) -> None:
    for batch_id in range(3):
        write(tmp_path, batch_id, 1000 * batch_id, DAY_MS + batch_id)
    reader = TableReader(str(tmp_path), max_age_s=0.0)
    before = values(reader), values(reader, Span(1000, 2000)), reader.extent()
    Tables(str(tmp_path)).maintain("samples", retention_hours=0)
    assert len(list((tmp_path / "samples").glob("day=*/*.parquet"))) == 2
    assert (values(reader), values(reader, Span(1000, 2000)), reader.extent()) == before


def test_aggregates_are_those_of_the_rows(reader: TableReader) -> None:
    piece = Piece(ROLLUPS[1], Span(BEGIN_MS, BEGIN_MS + HOUR_MS))
    keys = {"host": pc.field("hostname"), "field": pc.field("field")}
    measures = [Measure("samples", "sum", pc.field("count")), Measure("most", "max", pc.field("max"))]
    found = reader.aggregate(piece, keys, measures, pc.field("field").isin([203, 150]))
    rows = {(row["host"], row["field"]): (row["samples"], row["most"]) for row in found.to_pylist()}
    assert rows == {
        ("host-1", 203): (120, 80.0),
        ("host-2", 203): (120, 95.0),
        ("host-1", 150): (120, 60.0),
        ("host-2", 150): (120, 70.0),
    }


def test_the_widest_windows_that_are_complete(reader: TableReader) -> None:
    extent = reader.extent()
    assert extent == Span(BEGIN_MS, BEGIN_MS + (MINUTES - 1) * 60_000 + 1)
    levels = [(piece.level.table, piece.span.width // 60_000) for piece in reader.cover(extent)]
    assert levels == [("rollups_1h", 120), ("rollups_1m", 27), ("rollups_10s", 2)]
