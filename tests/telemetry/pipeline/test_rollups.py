from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.pipeline import rollups
from penstock.telemetry.pipeline.admission import WINDOW_MS, Window, admit
from penstock.telemetry.pipeline.columns import series_of
from penstock.telemetry.pipeline.rollups import Counters, Rollup, no_counters
from penstock.telemetry.pipeline.sketch import ACCURACY
from tests.amounts import amount

TEMPERATURE, POWER, ENERGY = 150, 155, 156
MINUTE = 60_000


def series(field: int, gpu: int = 0) -> int:
    return int(series_of(np.array([gpu]), np.array([field]))[0])


def windows(*rows: tuple[int, int, float]) -> list[Window]:
    """Windows of samples (series, at, value), as they close."""
    numbers, at, values = (np.array(column) for column in zip(*rows, strict=True))
    pending = admit(numbers, at, values.astype(np.float64), {}, 0).pending
    return [pending[start] for start in sorted(pending)]


def rolled(*rows: tuple[int, int, float], before: Counters | None = None) -> list[Rollup]:
    found, counters = [], before or no_counters()
    for window in windows(*rows):
        rollup, counters = rollups.summarise(window, counters)
        found.append(rollup)
    return found


def test_a_window_has_the_statistics_of_its_samples() -> None:
    gauge = series(TEMPERATURE)
    first, second = rolled((gauge, 9_999, 50.0), (gauge, 1_000, 40.0), (gauge, 10_000, 7.0))
    found = first.summaries
    assert (first.start, found.n[0], found.min[0], found.max[0], found.sum[0]) == (0, 2, 40.0, 50.0, 90.0)
    assert (found.last[0], found.last_at[0]) == (50.0, 9_999)
    assert (second.start, second.summaries.n.tolist()) == (10_000, [1])


def test_a_counter_that_falls_has_started_again() -> None:
    counter = series(ENERGY)
    rows = [(counter, at * 10_000, value) for at, value in enumerate((100.0, 150.0, 20.0, 25.0))]
    found = [each.summaries for each in rolled(*rows)]
    assert [each.increase[0] for each in found] == [0.0, 50.0, 20.0, 5.0]
    assert [each.covered_ms[0] for each in found] == [0, 10_000, 10_000, 10_000]
    (whole,) = rolled(*((number, at // 10, value) for number, at, value in rows))
    assert whole.summaries.increase.tolist() == [75.0]
    assert whole.summaries.covered_ms.tolist() == [3_000]


def test_counters_are_followed_across_windows_and_gauges_are_not_followed() -> None:
    counter, gauge, new = series(ENERGY), series(TEMPERATURE), series(ENERGY, gpu=1)
    (first,) = windows((counter, 0, 100.0), (gauge, 0, 1.0))
    _, counters = rollups.summarise(first, no_counters())
    assert [column.tolist() for column in counters] == [[counter], [0], [100.0]]
    (second,) = windows((counter, 10_000, 130.0), (gauge, 10_000, 5.0), (new, 10_000, 7.0))
    rollup, counters = rollups.summarise(second, counters)
    assert rollup.summaries.series.tolist() == [gauge, counter, new]
    assert rollup.summaries.increase.tolist() == [0.0, 30.0, 0.0]
    assert counters.value.tolist() == [130.0, 7.0]


VALUES = st.floats(0, 1000, allow_nan=False).map(lambda value: round(value, 3))


@settings(max_examples=amount(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 59), st.sampled_from([TEMPERATURE, ENERGY]), VALUES), min_size=1))
def test_a_minute_from_ten_second_windows_equals_a_minute_from_samples(
    rows: list[tuple[int, int, float]],
) -> None:
    distinct = {(series(field), second): value for second, field, value in rows}
    tens = rolled(*((number, second * 1000, value) for (number, second), value in distinct.items()))
    merged = rollups.merge(0, tens)
    # The same samples in one window, whose milliseconds stand for seconds.
    (direct,) = rolled(*((*key, value) for key, value in distinct.items()))
    assert merged.sketch.key.tolist() == direct.sketch.key.tolist()
    assert merged.sketch.n.tolist() == direct.sketch.n.tolist()
    for name in ("series", "n", "min", "max", "last"):
        assert getattr(merged.summaries, name).tolist() == getattr(direct.summaries, name).tolist()
    assert merged.summaries.last_at.tolist() == [1000 * at for at in direct.summaries.last_at]
    assert merged.summaries.sum.tolist() == pytest.approx(direct.summaries.sum.tolist())
    assert merged.summaries.increase.tolist() == pytest.approx(direct.summaries.increase.tolist())


@settings(max_examples=amount(60), deadline=None)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=50), min_size=1, max_size=4), st.sampled_from([0.5, 0.95])
)
def test_quantiles_are_near_the_true_ones(gpus: list[list[float]], share: float) -> None:
    rows = [
        (series(TEMPERATURE, gpu), at, measured)
        for gpu, values in enumerate(gpus)
        for at, measured in enumerate(values)
    ]
    (rollup,) = rolled(*rows, *((series(ENERGY, gpu), 0, 1.0) for gpu in range(len(gpus))))
    (found,) = rollups.quantile_columns(rollup, (share,))
    assert np.isnan(found[1::2]).all(), "of counters there are none"
    for quantile, values in zip(found[0::2], gpus, strict=True):
        true = sorted(values)[int(share * (len(values) - 1))]
        assert quantile == pytest.approx(true, rel=1.001 * ACCURACY, abs=1e-6)


def test_windows_are_given_out_when_they_are_over() -> None:
    gauge = series(POWER)
    tens = rolled((gauge, 0, 1.0), (gauge, 50_000, 3.0), (gauge, 60_000, 2.0))
    none, first = rollups.roll_up([], tens[:1], MINUTE, WINDOW_MS)
    assert (none, first) == ([], tens[:1])
    done, rest = rollups.roll_up(first, tens[1:], MINUTE, MINUTE + WINDOW_MS)
    assert [(each.start, each.summaries.sum.tolist()) for each in done] == [(0, [4.0])]
    assert [(each.start, each.summaries.sum.tolist()) for each in rest] == [(60_000, [2.0])]
    assert rollups.roll_up(rest, [], MINUTE, MINUTE + WINDOW_MS) == ([], rest)
    done, nothing = rollups.roll_up(rest, [], MINUTE, 2 * MINUTE)
    assert ([each.start for each in done], nothing) == ([60_000], [])


def test_a_rollup_survives_being_kept() -> None:
    (rollup,) = rolled((series(POWER), 0, 1.0), (series(ENERGY), 1, 2.0))
    again = rollups.rollup_from_tables(rollup.start, *rollups.rollup_tables(rollup))
    assert again.start == rollup.start
    for kept, made in zip(
        (*again.summaries, *again.sketch), (*rollup.summaries, *rollup.sketch), strict=True
    ):
        assert kept.tolist() == made.tolist()
