"""One GPU's telemetry: order, bounds, and pages that together are all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.fields import FIELDS as TABLE
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.series import (
    RESOLUTIONS,
    Place,
    Resolution,
    Sample,
    Window,
    pick_resolution,
    read_page,
)
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, Span, milliseconds
from tests.telemetry.small_fleet import BEGIN_MS, ENERGY, FIELDS, MINUTES, UTIL, XID, SmallPipeline

RAW, HOURS = RESOLUTIONS["raw"], RESOLUTIONS["1h"]
ALL = Span(0, BEGIN_MS + DAY_MS)
MINUTE_MS = 60_000


def at(minute: int) -> int:
    return BEGIN_MS + minute * MINUTE_MS


def places(rows: list[Any]) -> list[tuple[int, int]]:
    numbers = {field.name: field.id for field in TABLE.values()}
    return [(milliseconds(row.timestamp), numbers[row.metric]) for row in rows]


def test_samples_in_order_of_time_and_field(reader: TableReader) -> None:
    page = read_page(reader, "GPU-a0", RAW, ALL, (), 10_000)
    assert page.last is None
    assert places(page.rows) == [(at(minute), field) for minute in range(MINUTES) for field in FIELDS]
    first = page.rows[3]
    assert first == Sample(
        first.timestamp, "DCGM_FI_DEV_GPU_UTIL", "%", 80.0, "train-1", "train-1", "train-1-0"
    )


def test_bounds_are_inclusive_of_the_first_and_exclusive_of_the_end(reader: TableReader) -> None:
    page = read_page(reader, "GPU-a0", RAW, Span(at(10), at(12) + 1), [UTIL], 100)
    assert places(page.rows) == [(at(10), UTIL), (at(11), UTIL), (at(12), UTIL)]
    page = read_page(reader, "GPU-a0", RAW, Span(at(10) + 1, at(12)), [UTIL], 100)
    assert places(page.rows) == [(at(11), UTIL)]


def test_windows_have_the_statistics_of_their_time(reader: TableReader) -> None:
    (first, second) = read_page(reader, "GPU-a0", HOURS, ALL, [ENERGY], 100).rows
    assert isinstance(first, Window)
    assert isinstance(second, Window)
    assert (first.count, first.last, first.p50) == (60, 59 * 36e6, None)
    # 600 W for 59 minutes; and from the last sample of one hour to the last of the next, for 60.
    assert (first.increase, first.covered_s) == (59 * 36e6, 59 * 60.0)
    assert (second.increase, second.covered_s) == (60 * 36e6, 3600.0)
    (xid, _) = read_page(reader, "GPU-a0", HOURS, ALL, [XID], 100).rows
    assert isinstance(xid, Window)
    assert (xid.min, xid.max, xid.mean, xid.increase) == (0.0, 79.0, 39.5, None)
    assert xid.p95 == pytest.approx(79.0, rel=0.01)


@pytest.mark.parametrize(("name", "count"), [("10s", MINUTES - 2), ("1m", MINUTES - 3), ("1h", 2)])
def test_windows_that_have_closed(reader: TableReader, name: str, count: int) -> None:
    page = read_page(reader, "GPU-a0", RESOLUTIONS[name], ALL, [UTIL], 10_000)
    assert len(page.rows) == count
    assert all(isinstance(row, Window) and row.mean == 80.0 for row in page.rows)


def test_a_gpu_that_is_not_there(reader: TableReader) -> None:
    assert read_page(reader, "GPU-x", RAW, ALL, (), 10) == ([], None)
    assert read_page(reader, "GPU-a0", RAW, Span(0, BEGIN_MS), (), 10) == ([], None)


@settings(max_examples=25, deadline=None)
@given(
    resolution=st.sampled_from(list(RESOLUTIONS.values())),
    first=st.integers(-5, MINUTES),
    width=st.integers(1, 40),
    fields=st.sets(st.sampled_from(FIELDS)),
    limit=st.integers(7, 60),
)
def test_all_pages_together_are_the_whole(
    reader: TableReader, resolution: Resolution, first: int, width: int, fields: set[int], limit: int
) -> None:
    span = Span(at(first), at(first + width))
    whole = read_page(reader, "GPU-b0", resolution, span, list(fields), 100_000)
    assert whole.last is None
    pages: list[Any] = []
    after: Place | None = None
    while True:
        page = read_page(reader, "GPU-b0", resolution, span, list(fields), limit, after)
        pages += page.rows
        if page.last is None:
            break
        assert len(page.rows) == limit
        after = page.last
    assert pages == whole.rows
    assert len(set(places(pages))) == len(pages)


@pytest.mark.parametrize(
    ("width", "name"),
    [
        (0, "raw"),
        (HOUR_MS, "raw"),
        (HOUR_MS + 1, "10s"),
        (12 * HOUR_MS + 1, "1m"),
        (7 * DAY_MS, "1m"),
        (7 * DAY_MS + 1, "1h"),
        (9999 * DAY_MS, "1h"),
    ],
)
def test_longer_spans_have_wider_windows(width: int, name: str) -> None:
    assert pick_resolution(Span(0, width)).name == name


def test_a_window_that_a_backfill_has_split_is_one_row(tmp_path: Path) -> None:
    pipeline = SmallPipeline(tmp_path)
    pipeline.run_batches([0, 45])
    pipeline.close()
    pipeline = SmallPipeline(tmp_path, minute=45, batch_id=1)
    pipeline.run_batches([45, 90])
    pipeline.close()
    page = read_page(TableReader(str(tmp_path)), "GPU-a0", HOURS, ALL, [UTIL, ENERGY], 100)
    assert places(page.rows) == [(at(0), ENERGY), (at(0), UTIL), (at(60), ENERGY), (at(60), UTIL)]
    windows = [row for row in page.rows if isinstance(row, Window)]
    assert [(row.count, row.mean) for row in windows if row.increase is None] == [(60, 80.0), (30, 80.0)]
    assert [row.p50 is None for row in windows if row.increase is None] == [True, False]
    assert [row.last for row in windows if row.increase is None] == [None, 80.0]
    assert [row.increase for row in windows if row.increase is not None] == [59 * 3.6e7, 30 * 3.6e7]
