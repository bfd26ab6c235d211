"""Histograms of latencies: bounded error, percentiles, plots."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.benching.latency import Latencies, duration, percentiles, plot


def measured(values: list[int]) -> Latencies:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    return latencies


@given(st.lists(st.integers(0, 10**9), min_size=1), st.floats(0, 100))
def test_a_percentile_is_at_most_a_sixteenth_too_large(values: list[int], percent: float) -> None:
    """Compared with the exact one, which sorts all values."""
    found = measured(values).percentile_us(percent)
    wanted = len(values) * percent / 100
    exact = next(value for rank, value in enumerate(sorted(values), 1) if rank >= wanted)
    assert exact <= found <= exact * 17 / 16


@given(st.lists(st.integers(0, 10**9)), st.lists(st.integers(0, 10**9)))
def test_merged_histograms_are_that_of_all_values(first: list[int], second: list[int]) -> None:
    merged, together = measured(first), measured([*first, *second])
    merged.merge(measured(second))
    assert merged.rows() == together.rows()
    assert (merged.count, merged.max_us, merged.mean_us) == (
        together.count,
        together.max_us,
        together.mean_us,
    )
    assert sum(count for _, _, count in merged.rows()) == len(first) + len(second)


@given(st.integers(0, 10**9))
def test_each_value_is_in_its_row(value: int) -> None:
    ((low, high, count),) = measured([value]).rows()
    assert low <= value < high and count == 1


def test_the_plot() -> None:
    latencies = measured([*[1500] * 8, *[3000] * 4, 9000])
    assert plot(latencies, 8) == [
        " 1.02 ms -  2.05 ms  61.54% ████████",
        " 2.05 ms -   4.1 ms  30.77% ████",
        "  4.1 ms -  8.19 ms   0.00%",
        " 8.19 ms -  16.4 ms   7.69% █",
    ]
    assert percentiles(latencies, (50, 99.9)) == {"p50": 1.535, "p99.9": 9.0}
    assert plot(Latencies(), 8) == []


def test_durations() -> None:
    assert [duration(us) for us in (0, 999, 1500, 2_500_000)] == ["0 us", "999 us", "1.5 ms", "2.5 s"]
