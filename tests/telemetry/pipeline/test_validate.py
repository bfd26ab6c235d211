from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from penstock.telemetry.pipeline.validate import REASONS, ROW_DDL, validate
from tests.telemetry.pipeline.messages import NOW_MS, as_bytes, frame, value

AHEAD_MS = 60_000


def test_a_sample_goes_on_typed_and_by_the_number_of_its_field(spark: SparkSession) -> None:
    renamed = "DCGM_FI_DEV_GPU_TEMP_CELSIUS"
    found = validate(frame(spark, [value(), value(metric=renamed)]), NOW_MS, AHEAD_MS)
    about = ("host-1", "nvidia0", "H200", "job-1", "team")
    expected = [("GPU-1", 150, NOW_MS, 40.0, *about, None, "t", 0, offset, None) for offset in (0, 1)]
    assertDataFrameEqual(found, spark.createDataFrame(expected, ROW_DDL))


def _without(place: int) -> Any:
    whole = list(value())
    whole[place] = None
    return tuple(whole)


def _at(text: str) -> Any:
    return (text, *value()[1:])


BLANK = 0x7FFFFFFFFFFFFFF0
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


CASES: list[tuple[Any, str | None]] = [
    (b"{}{}", "not a sample"),
    (b"", "not a sample"),
    (_without(2), "no GPU"),
    (value(gpu=""), "no GPU"),
    (value(metric="DCGM_FI_DEV_NO_SUCH"), "unknown metric"),
    (_without(1), "unknown metric"),
    (_without(0), "no time"),
    (_at("yesterday"), "no time"),
    (_at("2027-01-15T08:00:00"), "no time"),
    (_at("2027-01-15T09:00:00+01:00"), None),
    (value(at_ms=NOW_MS + AHEAD_MS), None),
    (value(at_ms=NOW_MS + AHEAD_MS + 1), "from the future"),
    (_without(5), "no value"),
    (value(measured=float("nan")), "no value"),
    (value(measured=float(BLANK)), "blank"),
    (value(measured=151.0), "out of range"),
    (value(measured=-1.0), "out of range"),
    # Above what says "blank" for 32 bits: this field has 64.
    (value(metric=ENERGY, measured=float(0x7FFFFFF0)), None),
    (value(metric=ENERGY, measured=float(BLANK)), "blank"),
    # A double has a blank of its own.
    (value(metric="DCGM_FI_DEV_POWER_USAGE", measured=140737488355328.0), "blank"),
]


def test_what_is_no_sample_says_why(spark: SparkSession) -> None:
    found = validate(frame(spark, [message for message, _ in CASES]), NOW_MS, AHEAD_MS)
    rows = sorted(found.collect(), key=lambda row: int(row.offset))
    assert [row.reason for row in rows] == [reason for _, reason in CASES]
    assert {reason for _, reason in CASES if reason} == set(REASONS)
    assert [row.raw is None for row in rows] == [reason is None for _, reason in CASES]


def test_dead_letters_keep_their_bytes_and_their_place(spark: SparkSession) -> None:
    broken, wrong = b'{"broken', value(measured=-1.0)
    rows = validate(frame(spark, [broken, wrong], first_offset=7), NOW_MS, AHEAD_MS).collect()
    found = sorted((row.topic, row.partition, row.offset, bytes(row.raw)) for row in rows)
    assert found == [("t", 0, 7, broken), ("t", 0, 8, bytes(as_bytes(wrong)))]
