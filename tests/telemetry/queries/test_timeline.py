"""A metric of all GPUs in equal steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.telemetry.queries.gpus import latest
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, Span
from penstock.telemetry.queries.timeline import read_timelines, step_of
from tests.telemetry.small_fleet import BEGIN_MS, POWER, UTIL


def test_a_row_for_each_gpu_and_a_column_for_each_step(reader: TableReader) -> None:
    found, power = read_timelines(reader, latest(reader), (UTIL, POWER))
    assert found.gpu_ids == ["GPU-a0", "GPU-a1", "GPU-b0", "GPU-b1"]
    assert found.hostnames == ["host-1", "host-1", "host-2", "host-2"]
    assert found.step_ms == 30_000
    assert found.starts_ms[0] == BEGIN_MS
    # A sample a minute: every second step has none.
    assert np.nanmax(found.values, axis=1).tolist() == [80.0, 0.0, 95.0, 40.0]
    assert np.isnan(found.values[0, 1::2]).all()
    assert not np.isnan(found.values[0, : 2 * 148 : 2]).any()
    assert np.isnan(found.values[3, 120:]).all()
    assert np.nanmax(power.values, axis=1).tolist() == [600.0, 100.0, 300.0, 200.0]


def test_steps_may_be_wider_than_windows(reader: TableReader) -> None:
    (found,) = read_timelines(reader, Span(BEGIN_MS - DAY_MS, BEGIN_MS + 2 * HOUR_MS), (UTIL,))
    assert found.step_ms == 15 * 60_000
    measured = found.values[:, ~np.isnan(found.values).all(axis=0)]
    assert measured.shape == (4, 8)
    assert (measured[0] == 80.0).all()


@pytest.mark.parametrize(
    ("width", "step"),
    [(HOUR_MS // 2, 10_000), (HOUR_MS, 30_000), (DAY_MS, 5 * 60_000), (4000 * DAY_MS, 7 * DAY_MS)],
)
def test_steps_follow_from_the_span(width: int, step: int) -> None:
    assert step_of(Span(0, width)) == step


def test_no_gpus(tmp_path: Path) -> None:
    (found,) = read_timelines(TableReader(str(tmp_path)), Span(0, HOUR_MS), (UTIL,))
    assert found.gpu_ids == []
    assert found.values.shape == (0, len(found.starts_ms))
