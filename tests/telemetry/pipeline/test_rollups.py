from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.pipeline import rollups
from penstock.telemetry.pipeline.admission import PENDING, series_of
from penstock.telemetry.pipeline.sketch import ACCURACY

TEMPERATURE, POWER, ENERGY = 150, 155, 156
TEN_S, MINUTE = 10_000, 60_000


def series(field: int, gpu: int = 0) -> int:
    return int(series_of(np.array([gpu]), np.array([field]))[0])


def samples(*rows: tuple[int, int, float]) -> Any:
    """In order of series and time, as `close` gives them."""
    columns = zip(*sorted(rows), strict=True) if rows else [[], [], []]
    return pa.table([pa.array(list(column)) for column in columns], schema=PENDING)


def followed(rows: Any) -> Any:
    return rollups.follow_counters(rows, PENDING.empty_table())[0]


def test_a_window_says_what_was_measured_in_it() -> None:
    gauge = series(TEMPERATURE)
    rollup = rollups.summarise(
        followed(samples((gauge, 1_000, 40.0), (gauge, 9_999, 50.0), (gauge, 10_000, 7.0))), TEN_S
    )
    first, second = rollup.summaries.to_pylist()
    assert (first["start"], first["count"], first["min"], first["max"], first["sum"]) == (
        0,
        2,
        40.0,
        50.0,
        90.0,
    )
    assert (first["last"], first["last_at"]) == (50.0, 9_999)
    assert (second["start"], second["count"]) == (10_000, 1)


def test_a_counter_that_falls_has_started_again() -> None:
    counter = series(ENERGY)
    rows = samples(
        (counter, 0, 100.0), (counter, 1_000, 150.0), (counter, 2_000, 20.0), (counter, 3_000, 25.0)
    )
    assert followed(rows)["increase"].to_pylist() == [0.0, 50.0, 20.0, 5.0]
    assert followed(rows)["covered_ms"].to_pylist() == [0, 1_000, 1_000, 1_000]


def test_counters_are_followed_across_windows_and_gauges_are_not_followed() -> None:
    counter, gauge = series(ENERGY), series(TEMPERATURE)
    _, last = rollups.follow_counters(samples((counter, 0, 100.0), (gauge, 0, 1.0)), PENDING.empty_table())
    assert last.to_pylist() == [{"series": counter, "at": 0, "value": 100.0}]
    second, last = rollups.follow_counters(samples((counter, 10_000, 130.0), (gauge, 10_000, 5.0)), last)
    assert second["increase"].to_pylist() == [0.0, 30.0], "the gauge has the lower number"
    assert last["value"].to_pylist() == [130.0]
    nothing, last = rollups.follow_counters(PENDING.empty_table(), last)
    assert (len(nothing), last["value"].to_pylist()) == (0, [130.0])


VALUES = st.floats(0, 1000, allow_nan=False).map(lambda value: round(value, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 119), st.sampled_from([TEMPERATURE, ENERGY]), VALUES), min_size=1))
def test_minutes_from_tens_are_what_minutes_from_samples_are(rows: list[tuple[int, int, float]]) -> None:
    distinct = {(series(field), second * 1000): value for second, field, value in rows}
    whole = followed(samples(*((*key, value) for key, value in distinct.items())))
    direct = rollups.summarise(whole, MINUTE)
    merged = rollups.merge([rollups.summarise(whole, TEN_S)], MINUTE)
    assert merged.sketch.equals(direct.sketch)
    exact = [name for name in rollups.SUMMARY.names if name not in ("sum", "increase")]
    assert merged.summaries.select(exact).equals(direct.summaries.select(exact))
    for name in ("sum", "increase"):
        assert merged.summaries[name].to_pylist() == pytest.approx(direct.summaries[name].to_pylist())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=50), min_size=1, max_size=4), st.sampled_from([0.5, 0.95])
)
def test_quantiles_are_near_the_true_ones(windows: list[list[float]], share: float) -> None:
    rows = [
        (series(TEMPERATURE, gpu), at, value)
        for gpu, values in enumerate(windows)
        for at, value in enumerate(values)
    ]
    rows += [(series(ENERGY, gpu), 0, 1.0) for gpu in range(len(windows))]
    rollup = rollups.summarise(followed(samples(*rows)), MINUTE)
    (found,) = rollups.quantile_columns(rollup, (share,))
    assert found.to_pylist()[1::2] == [None] * len(windows), "of counters there are none"
    for quantile, values in zip(found.to_pylist()[0::2], windows, strict=True):
        true = sorted(values)[int(share * (len(values) - 1))]
        assert quantile == pytest.approx(true, rel=1.001 * ACCURACY, abs=1e-6)


def test_windows_are_given_out_when_they_are_over() -> None:
    gauge = series(POWER)
    rollup = rollups.summarise(followed(samples((gauge, 0, 1.0), (gauge, 60_000, 2.0))), MINUTE)
    done, rest = rollups.split(rollup, 60_000, MINUTE)
    assert done.summaries["start"].to_pylist() == [0]
    assert rest.summaries["start"].to_pylist() == [60_000]
    assert (len(done.sketch), len(rest.sketch)) == (1, 1)
