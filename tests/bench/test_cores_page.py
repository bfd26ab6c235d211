"""The measured part of the page about many cores."""

from __future__ import annotations

from bench.cores_page import BEGIN, COST, END, PAGE, section
from bench.results import CORES, Run, load


def a_run(cost: dict[str, float], limited: dict[str, float]) -> Run:
    values = {
        COST: {brokers: {"penstock": [value, value + 1]} for brokers, value in cost.items()},
        "limited": {brokers: {"penstock": [value]} for brokers, value in limited.items()},
    }
    return Run("a machine", {}, "abc1234", 2, 8.0, ["penstock"], values, date="2026-01-01")


def test_the_published_part_is_the_one_of_the_results() -> None:
    assert section(load(CORES)) in PAGE.read_text(encoding="utf-8")


def test_growth_is_taken_from_the_best_rounds() -> None:
    text = section([a_run({"1": 4.0, "16": 4.4}, {})])
    assert "| 16 | 4.4 (4.9) | 1.10 |" in text
    assert "at most 1.15 × at 16: met" in text
    assert "at most 1.15 × at 16: missed" in section([a_run({"1": 4.0, "16": 4.8}, {})])


def test_throughput_is_compared_with_that_many_times_one_broker() -> None:
    text = section([a_run({}, {"1": 100.0, "2": 190.0, "4": 360.0, "8": 640.0})])
    assert "| 8 | 640 (640) | 0.80 | not measured |" in text
    assert "at least 0.85 × N: missed" in text
    assert text.startswith(BEGIN)
    assert text.endswith(END)


def test_a_growth_that_was_not_measured_meets_no_target() -> None:
    text = section([a_run({}, {"1": 100.0})])
    assert ": met" not in text


def test_without_results_the_page_says_so() -> None:
    assert "Not measured yet" in section([])
