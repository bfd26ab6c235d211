"""Expired days of the small fleet: what goes, what stays, and what queries say afterwards."""

from __future__ import annotations

import shutil
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from penstock.jobs.storage import Store
from penstock.telemetry.expiry.job import SampleExpiry, prover
from penstock.telemetry.expiry.proof import prove
from penstock.telemetry.expiry.removal import days_of, expired_before
from penstock.telemetry.expiry.rule import Proof
from penstock.telemetry.pipeline.batches import Batches, BatchReport, Settings
from penstock.telemetry.pipeline.shard import Counts
from penstock.telemetry.pipeline.tables import TABLES, Tables, write_files
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.series import RESOLUTIONS, pick_resolution, read_page
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, Span
from penstock.telemetry.recompute import recompute
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.small_fleet import BEGIN_MS, MINUTES, samples

#: the small fleet an hour before midnight
SHIFT_MS = 3 * HOUR_MS
START_MS = BEGIN_MS + SHIFT_MS
FIRST_DAY, SECOND_DAY = "2025-07-18", "2025-07-19"
MIDNIGHT_MS = START_MS + HOUR_MS
KEEP_MS = 2 * DAY_MS


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("two-days")
    batches = Batches(
        str(place),
        str(place / "_queries" / "test"),
        Settings(load_thresholds(), shards=2),
        clock=lambda: START_MS + MINUTES * 60_000,
        run_shards=run_here,
    )
    offset = 0
    for batch_id, (first, end) in enumerate(pairwise((0, 50, 100, MINUTES))):
        rows = [
            {**row, "at": row["at"] + SHIFT_MS, "topic": "t", "partition": 0, "offset": at}
            for at, row in enumerate(samples(first, end), offset)
        ]
        offset += len(rows)
        batches.process(rows, batch_id)
    batches.close()
    return place


@pytest.fixture
def tables(two_days: Path, tmp_path: Path) -> Path:
    """A copy whose samples may go."""
    return Path(shutil.copytree(two_days, tmp_path / "tables"))


class Expiring:
    """An expiry with proofs in this process, and what it says."""

    def __init__(self, tables: Path, clock_ms: int) -> None:
        self.said: list[str] = []
        self.proven: list[str] = []
        self._reader = TableReader(str(tables))
        self.registry = CollectorRegistry()
        self.clock_ms = clock_ms
        self.expiry = SampleExpiry(
            str(tables),
            KEEP_MS,
            self._prove,
            self.registry,
            clock=lambda: self.clock_ms,
            say=self.said.append,
        )

    def _prove(self, days: object) -> list[Proof]:
        assert isinstance(days, list)
        self.proven += days
        return [prove(self._reader, day) for day in days]

    def batch(self, watermark_ms: int) -> None:
        counts = Counts(*(0 for _ in Counts._fields))
        self.expiry(BatchReport(0, counts, watermark_ms, self.clock_ms, []))

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"penstock_pipeline_{name}")


def samples_of(tables: Path) -> Any:
    return Tables(str(tables)).open("samples").to_pyarrow_table()


def days(tables: Path) -> list[str]:
    opened = Tables(str(tables)).find("samples")
    assert opened is not None
    return days_of(opened)


def test_a_proven_day_goes_and_its_rollups_stay(tables: Path) -> None:
    rows = samples_of(tables).num_rows
    assert days(tables) == [FIRST_DAY, SECOND_DAY]
    late = MIDNIGHT_MS + KEEP_MS
    expiring = Expiring(tables, clock_ms=late + HOUR_MS)
    expiring.batch(watermark_ms=late - 1)
    expiring.expiry.close()
    assert days(tables) == [FIRST_DAY, SECOND_DAY], "a millisecond before its time the day stays"
    expiring = Expiring(tables, clock_ms=late + HOUR_MS)
    expiring.batch(watermark_ms=late)
    expiring.expiry.close()
    assert days(tables) == [SECOND_DAY]
    left = samples_of(tables).num_rows
    assert expiring.value("expired_samples_total") == rows - left > 0
    assert expiring.value("unproven_days") == 0
    (line,) = expiring.said
    assert line.startswith(f"{rows - left:,} samples of 1 days up to {FIRST_DAY} have expired (")
    assert expired_before(Store(str(tables))) == SECOND_DAY
    hours = Tables(str(tables)).open("rollups_1h").to_pyarrow_table()
    assert {str(start.date()) for start in hours["window_start"].to_pylist()} == {FIRST_DAY, SECOND_DAY}
    assert sum(hours["count"].to_pylist()) == rows


def test_a_clock_in_the_next_year_removes_nothing(tables: Path) -> None:
    expiring = Expiring(tables, clock_ms=MIDNIGHT_MS + 365 * DAY_MS)
    expiring.batch(watermark_ms=MIDNIGHT_MS + HOUR_MS)
    expiring.expiry.close()
    assert (expiring.proven, days(tables)) == ([], [FIRST_DAY, SECOND_DAY])


def test_a_day_whose_rollups_lack_samples_stays(tables: Path, caplog: pytest.LogCaptureFixture) -> None:
    minutes = Tables(str(tables)).open("rollups_1m")
    minutes.delete(f"day = '{FIRST_DAY}' AND field = 150 AND gpu_id = 'GPU-a0'")
    expiring = Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS)
    expiring.expiry.run("2025-07-25")
    assert days(tables) == [FIRST_DAY], "the other day is proven"
    assert expiring.value("unproven_days") == 1
    assert f"samples of {FIRST_DAY} stay: " in caplog.text
    assert "of field 150 in the hour of 2025-07-18 23:00, rollups_1m counts" in caplog.text


def test_samples_that_come_after_the_proof_stay(tables: Path) -> None:
    late = samples_of(tables).sort_by("at").slice(0, 1)

    class Late(Expiring):
        def _prove(self, days: object) -> list[Proof]:
            found = super()._prove(days)
            rows = late.drop_columns(["day"]).select(TABLES["samples"].names).cast(TABLES["samples"])
            files = write_files(Store(str(tables)), "samples", rows)
            assert Tables(str(tables)).commit("samples", files, "another", 0)
            return found

    Late(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS).expiry.run(SECOND_DAY)
    first = samples_of(tables).filter(pc.field("day") == late["day"][0])
    assert first.num_rows >= 1, "the row that the proof has not seen has gone"
    assert late["offset"][0] in first["offset"]


def test_a_day_that_is_compacted_after_its_proof_stays_until_the_next_round(
    tables: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = samples_of(tables)

    class Compacted(Expiring):
        def _prove(self, days: object) -> list[Proof]:
            found = super()._prove(days)
            versions = Tables(str(tables)).open("samples").version()
            Tables(str(tables)).maintain("samples", 24)
            assert Tables(str(tables)).open("samples").version() > versions
            return found

    Compacted(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS).expiry.run(SECOND_DAY)
    assert "expiry of samples failed: " in caplog.text
    assert samples_of(tables).num_rows == before.num_rows
    Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS).expiry.run(SECOND_DAY)
    assert days(tables) == [SECOND_DAY]


def test_a_day_whose_files_have_samples_of_another_day_stays(
    tables: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Tables(str(tables)).open("samples")
    rows = opened.to_pyarrow_table()
    # As a local date two hours behind UTC has it.
    write_deltalake(
        opened,
        rows.set_column(
            rows.column_names.index("day"),
            "day",
            pc.if_else(
                pc.less(pc.hour(rows["at"]), 2), pa.scalar(date.fromisoformat(FIRST_DAY)), rows["day"]
            ),
        ),
        mode="overwrite",
    )
    expiring = Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS)
    expiring.expiry.run(SECOND_DAY)
    assert samples_of(tables).num_rows == rows.num_rows
    assert expiring.value("unproven_days") == 1
    assert f"samples of {FIRST_DAY} stay: its files have samples of other days" in caplog.text


def test_a_record_that_cannot_be_read_is_logged_and_removes_nothing(
    tables: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Store(str(tables)).write("_queries/expired-samples.json", b"no JSON")
    expiring = Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS)
    expiring.batch(watermark_ms=MIDNIGHT_MS + 10 * DAY_MS)
    expiring.expiry.close()
    assert "expiry of samples failed: " in caplog.text
    assert days(tables) == [FIRST_DAY, SECOND_DAY]


def test_queries_answer_from_rollups_where_samples_have_expired(tables: Path, two_days: Path) -> None:
    whole = TableReader(str(two_days))
    Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS).expiry.run(SECOND_DAY)
    reader = TableReader(str(tables))
    samples, history = reader.extent(), reader.history()
    assert samples is not None
    assert samples.start == MIDNIGHT_MS
    assert history == whole.history() == whole.extent()
    span = Span(START_MS, START_MS + HOUR_MS)
    assert pick_resolution(span, whole.extent()).name == "raw"
    assert pick_resolution(span, samples).name == "10s"
    pages = [read_page(each, "GPU-a0", RESOLUTIONS["10s"], span, (203,), 1000) for each in (reader, whole)]
    assert pages[0] == pages[1]
    assert len(pages[0].rows) == 60


def test_recompute_compares_the_days_that_are_left(spark: SparkSession, tables: Path) -> None:
    days_proven = prover(spark, str(tables), None)([FIRST_DAY, SECOND_DAY])
    assert [(proof.day, proof.difference) for proof in days_proven] == [(FIRST_DAY, None), (SECOND_DAY, None)]
    Expiring(tables, clock_ms=MIDNIGHT_MS + 10 * DAY_MS).expiry.run(SECOND_DAY)
    found = recompute(spark, Tables(str(tables)), kept_since=expired_before(Store(str(tables))))
    assert {each.table: each.differences for each in found} == dict.fromkeys(
        ("rollups_10s", "rollups_1m", "rollups_1h"), 0
    )
    assert all(each.windows > 0 for each in found)
    # Without the record the windows of the day would be called unexpected.
    assert all(each.differences > 0 for each in recompute(spark, Tables(str(tables))))
