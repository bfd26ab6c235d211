"""Best, median, asks and rounding in the table."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.__main__ import is_due, measure_row
from bench.charts import charts, number
from bench.report import limit, page, terminal
from bench.results import Run, load, save
from bench.rows import ROWS
from bench.table import Contender, Row, Values
from lab.server import Server


def a_run(**values: dict[str, list[float]]) -> Run:
    run = Run("2 cores", {"Python": "3.11"}, "abc1234", 2, 1.0, ["penstock", "kafka"])
    run.values = {"produce-1k": {metric.replace("_", " "): by for metric, by in values.items()}}
    return run


def test_best_follows_the_metric_s_direction() -> None:
    run = a_run(CPU_per_million={"penstock": [0.9, 0.5, 0.7], "kafka": [2.0, 1.2, 1.6]})
    assert "0.5 (0.7)" in terminal(run)
    assert "≤ 0.5 × Kafka: met" in terminal(run)


def test_a_missed_ask_is_named_as_plainly() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7], "kafka": [1.2]})
    assert "≤ 0.5 × Kafka: missed" in page(run)


def test_without_kafka_a_relative_ask_stays_open() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7]})
    assert "≤ 0.5 × Kafka |" in page(run)


@pytest.mark.parametrize(
    ("value", "shown"), [(1_164_321.0, "1,160,000"), (98_765.0, "98,800"), (37.26, "37.3"), (0.1234, "0.123")]
)
def test_three_figures(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_run_survives_the_file(tmp_path: Path) -> None:
    run = a_run(CPU_per_million={"penstock": [0.7]})
    save(tmp_path / "run.json", run)
    assert load(tmp_path / "run.json") == run


def test_a_chart_has_a_bar_for_each_contender() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7, 0.5], "kafka": [1.2, 1.4]})
    ((name, title, drawn),) = charts(run)
    root = ElementTree.fromstring(drawn)
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == [title, "penstock", "kafka", "produce-1k", "0.5", "1.2"]
    assert f"benchmarks/{name}.svg" in page(run)


@pytest.mark.parametrize(
    ("broker", "client", "expected"),
    [(0.95, 0.5, "the broker"), (0.6, 0.9, "the client"), (0.9, 1.0, "the machine")],
)
def test_who_is_the_limit(broker: float, client: float, expected: str) -> None:
    assert limit(broker, client, 2) == expected


def test_every_row_has_its_own_name() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_what_was_not_measured_is_said() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7], "kafka": [1.2]})
    run.failures.append("recovery on kafka: it did not come back")
    assert "- recovery on kafka: it did not come back" in page(run)
    assert "- `segments` on others than Penstock: " in page(run)


@pytest.mark.parametrize(("kind", "rounds"), [("heavy", [1]), ("few", [0, 1, 2]), ("usual", [0, 1, 2, 3])])
def test_which_rounds_measure_a_row(kind: str, rounds: list[int]) -> None:
    row = Row(
        "row", "", (), lambda contender, scale: {}, heavy=kind == "heavy", rounds=2 if kind == "few" else None
    )
    assert [turn for turn in range(4) if is_due(row, turn)] == rounds


def test_a_row_that_fails_is_noted_and_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(contender: Contender, scale: float) -> Values:
        raise RuntimeError("no luck")

    run = a_run()
    server = Server("kafka", 0, [], Path("log"))
    contender = Contender("kafka", server, lambda folder, settings: server)
    measure_row(run, Row("row", "", (), broken), contender, 1)
    assert run.failures == ["row on kafka: RuntimeError('no luck')"]
    assert "FAILED" in capsys.readouterr().err
