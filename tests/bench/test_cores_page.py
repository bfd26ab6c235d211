"""The measured part of the page about many cores."""

from __future__ import annotations

from bench.cores_load import LOADS
from bench.cores_page import BEGIN, END, PAGE, alone_of, cost_of, section
from bench.results import CORES, Run, load


def a_run(cost: dict[str, float], limited: dict[str, float], alone: dict[str, float] | None = None) -> Run:
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for each in LOADS:
        if cost:
            values[cost_of(each)] = {n: {"penstock": [value, value + 1]} for n, value in cost.items()}
        if alone:
            values[alone_of(each)] = {
                n: {"penstock": [value], "kafka": [2 * value]} for n, value in alone.items()
            }
    if limited:
        values["limited"] = {brokers: {"penstock": [value]} for brokers, value in limited.items()}
    return Run("a machine", {}, "abc1234", 2, 8.0, ["penstock"], values, date="2026-01-01")


def test_the_published_part_is_the_one_of_the_results() -> None:
    assert section(load(CORES)) in PAGE.read_text(encoding="utf-8")


def test_growth_is_taken_from_the_best_rounds() -> None:
    text = " ".join(section([a_run({"1": 4.0, "16": 4.4}, {})]).split())
    assert "| 16 | not measured | 4.4 (4.9) | 1.10 | not measured | | not measured | |" in text
    assert text.count("at most 1.15 × at 16: met (1.10 ×) against one broker with all of the load") == len(
        LOADS
    )
    assert "not measured against one broker with as much load as each of the 16." in text
    assert "at most 1.15 × at 16: missed (1.20 ×) against" in section([a_run({"1": 4.0, "16": 4.8}, {})])


def test_many_brokers_are_compared_with_one_that_has_as_much_load_as_each() -> None:
    text = " ".join(section([a_run({"1": 4.0, "16": 6.0}, {}, {"1": 4.0, "16": 5.0})]).split())
    assert "| 1 | not measured | 4 (4.5) | 1.00 | 4 (4.5) | 1.00 | 8 (8) | 1.00 |" in text
    assert "| 16 | not measured | 6 (6.5) | 1.50 | 5 (5) | 1.25 | 10 (10) | 1.25 |" in text
    assert (
        "missed (1.50 ×) against one broker with all of the load; missed (1.20 ×) against one broker" in text
    )


def test_throughput_is_compared_with_that_many_times_one_broker() -> None:
    text = section([a_run({}, {"1": 100.0, "2": 190.0, "4": 360.0, "8": 640.0})])
    assert "| 8 | 640 (640) | 0.80 | not measured |" in text
    assert "at least 0.85 × N: missed" in text
    assert "Throughput of Produce requests from a raw client, in batches of 16 KB" in text
    assert "Each broker is held to 6% of a core" in " ".join(text.split())
    assert text.startswith(BEGIN)
    assert text.endswith(END)


def test_a_growth_that_was_not_measured_meets_no_target() -> None:
    text = section([a_run({"16": 4.0}, {"1": 100.0})])
    assert "at most 1.15 × at 16: not measured against" in text


def test_a_part_that_was_measured_again_replaces_its_own_alone() -> None:
    older = a_run({"1": 4.0, "16": 4.4}, {"1": 100.0})
    newer = a_run({}, {"1": 200.0})
    text = section([older, newer])
    assert "| 1 | 200 (200) |" in text
    assert "| 1 | not measured | 4 (4.5) |" in text
    assert "| 1 | 100 (100) |" not in text


def test_without_results_the_page_states_it() -> None:
    assert "Not measured yet" in section([])


def test_measurements_that_failed_are_listed() -> None:
    run = a_run({"1": 4.0}, {})
    run.fail("idle", "4 brokers, penstock", RuntimeError("the machine is too busy"))
    text = section([run])
    assert "- idle on 4 brokers, penstock: RuntimeError: the machine is too busy\n" in text
    assert "Failed" not in section([a_run({"1": 4.0}, {})])
