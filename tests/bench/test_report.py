"""Best, median, targets and rounding in the table."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import __main__ as runner
from bench.__main__ import is_due, keep, measure, measure_row
from bench.charts import charts, number
from bench.latency import floor_of
from bench.report import limit, page, terminal
from bench.results import INTERPRETERS_ROW, Run, load, merged, save, together
from bench.rows import ROWS
from bench.table import Contender, Row, Values
from lab.cluster import Cluster, penstock_cluster
from lab.server import Server


def a_run(**values: dict[str, list[float]]) -> Run:
    run = Run("2 cores", {"Python": "3.11"}, "abc1234", 2, 1.0, ["penstock", "kafka"])
    run.values = {"produce-1k": {metric.replace("_", " "): by for metric, by in values.items()}}
    return run


def test_best_follows_the_metric_s_direction() -> None:
    run = a_run(CPU_per_million={"penstock": [0.9, 0.5, 0.7], "kafka": [2.0, 1.2, 1.6]})
    assert "0.5 (0.7)" in terminal(run)
    assert "≤ 0.5 × Kafka: met" in terminal(run)


def test_a_missed_target_is_named_as_plainly() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7], "kafka": [1.2]})
    assert "≤ 0.5 × Kafka: missed" in page([run])


def test_without_kafka_a_relative_target_stays_open() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7]})
    assert "≤ 0.5 × Kafka |" in page([run])


def test_a_target_below_the_cost_of_the_client_is_reported() -> None:
    run = a_run()
    run.values["latency-10k"] = {
        "p50": {"penstock": [0.9], "kafka": [1.2, 1.0]},
        "p99": {"penstock": [2.0], "kafka": [3.0]},
        floor_of("p50"): {"penstock": [0.9, 0.85], "kafka": [0.8]},
        floor_of("p99"): {"penstock": [2.0], "kafka": [2.1]},
    }
    shown = page([run])
    assert "| `latency-10k`, p50 | 0.7 | 0.8 | no broker can meet it |" in shown
    assert "| `latency-10k`, p99 | 2.1 | 2 | within reach |" in shown
    del run.values["latency-10k"]["p50"]["kafka"]
    assert "`latency-10k`, p50 |" not in page([run]), "without Kafka there is no target"


@pytest.mark.parametrize(
    ("value", "shown"), [(1_164_321.0, "1,160,000"), (98_765.0, "98,800"), (37.26, "37.3"), (0.1234, "0.123")]
)
def test_three_figures(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_run_survives_the_file(tmp_path: Path) -> None:
    run = a_run(CPU_per_million={"penstock": [0.7]})
    save(tmp_path / "run.json", [run])
    assert load(tmp_path / "run.json") == [run]


def test_a_chart_has_a_bar_for_each_contender() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7, 0.5], "kafka": [1.2, 1.4]})
    ((name, title, drawn),) = charts(run)
    root = ElementTree.fromstring(drawn)
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown == [title, "penstock", "kafka", "produce-1k", "0.5", "1.2"]
    assert f"benchmarks/{name}.svg" in page([run])


@pytest.mark.parametrize(
    ("broker", "client", "expected"),
    [(0.95, 0.5, "the broker"), (0.6, 0.9, "the client"), (0.9, 1.0, "the machine")],
)
def test_the_busier_side_is_the_limit(broker: float, client: float, expected: str) -> None:
    assert limit(broker, client, 2) == expected


def test_every_row_has_its_own_name() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)


def test_unmeasured_values_are_shown_as_such() -> None:
    run = a_run(CPU_per_million={"penstock": [0.7], "kafka": [1.2]})
    run.failures.append("recovery on kafka: it did not come back")
    assert "- recovery on kafka: it did not come back" in page([run])
    assert "- `segments` on others than Penstock: " in page([run])


@pytest.mark.parametrize(
    ("heavy", "requested", "rounds"),
    [(True, None, [1]), (True, 2, [1, 2]), (False, 2, [0, 1, 2]), (False, None, [0, 1, 2, 3])],
)
def test_which_rounds_measure_a_row(heavy: bool, requested: int | None, rounds: list[int]) -> None:
    row = Row("row", "", (), lambda contender, scale: {}, heavy=heavy, rounds=requested)
    assert [turn for turn in range(4) if is_due(row, turn)] == rounds


def test_a_row_that_fails_is_noted_and_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(contender: Contender, scale: float) -> Values:
        raise RuntimeError("no luck")

    run = a_run()
    server = Server("kafka", 0, [], Path("log"))
    contender = Contender("kafka", server, lambda folder, settings: server, penstock_cluster)
    measure_row(run, Row("row", "", (), broken), contender, 1)
    assert run.failures == ["row on kafka: RuntimeError: no luck"]
    assert "FAILED" in capsys.readouterr().err


def test_all_measurements_of_a_row_on_warm_brokers_count() -> None:
    def twice(contender: Contender, scale: float) -> list[Values]:
        return [{"cores": 1.0}, {"cores": 2.0}]

    run = a_run()
    server = Server("kafka", 0, [], Path("log"))
    contender = Contender("kafka", server, lambda folder, settings: server, penstock_cluster)
    measure_row(run, Row("row", "", (), twice), contender, 0)
    assert "row" not in run.values, "a round to warm up"
    measure_row(run, Row("row", "", (), twice), contender, 1)
    assert run.values["row"] == {"cores": {"kafka": [1.0, 2.0]}}


def at(commit: str, rows: dict[str, float], **others: str) -> Run:
    values = {row: {"messages/s": {"penstock": [value]}} for row, value in rows.items()}
    return Run("2 cores", {"Python": "3.11"}, commit, 5, 1.0, ["penstock"], values, **others)  # type: ignore[arg-type]


def test_rows_that_were_measured_again_take_the_old_ones_place() -> None:
    older = at("old", {"produce-1k": 1.0, "produce-100": 2.0})
    older.failures += ["produce-1k on kafka: slow", "produce-10k on kafka: slow"]
    runs = merged([older], at("new", {"produce-1k": 3.0}))
    assert [(run.commit, sorted(run.values)) for run in runs] == [
        ("old", ["produce-100"]),
        ("new", ["produce-1k"]),
    ]
    assert together(runs).values["produce-1k"]["messages/s"]["penstock"] == [3.0]
    assert together(runs).failures == ["produce-10k on kafka: slow"]


def test_a_run_of_which_nothing_is_left_is_forgotten() -> None:
    newest = at("new", {"produce-1k": 3.0})
    assert merged([at("old", {"produce-1k": 1.0})], newest) == [newest]


def test_a_commit_is_named_once_if_all_rows_share_it() -> None:
    runs = [at("same", {"produce-1k": 1.0}), at("same", {"produce-100": 2.0})]
    assert [line for line in page(runs).splitlines() if line.startswith("- Commit")] == ["- Commit: same"]


def test_commits_that_differ_are_named_with_their_rows() -> None:
    most = at("abc1234", {"produce-1k": 1.0, "produce-10k": 1.0})
    shown = page([most, at("def5678", {"produce-100": 2.0}, date="2026-11-15")])
    assert "- Commit: abc1234\n- Commit of `produce-100`: def5678, measured on 2026-11-15\n" in shown
    assert shown.count("- Machine") == 1
    assert "| produce 1-KB messages, 4 partitions, acks=all | messages/s | 1 (1) |" in shown


def test_a_file_from_before_there_were_parts_is_read(tmp_path: Path) -> None:
    old = tmp_path / "latest.json"
    old.write_text(
        '{"machine": "2 cores", "versions": {"Python": "3.11"}, "commit": "old", "rounds": 5, "scale": 1.0,'
        ' "contenders": ["penstock"], "values": {"produce-1k": {"messages/s": {"penstock": [1.0]}}}}'
    )
    assert load(old) == [at("old", {"produce-1k": 1.0})]
    assert load(tmp_path / "missing.json") == []


def test_a_part_refreshes_the_page_and_a_quick_run_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = tmp_path / "latest.json"
    written: list[list[Run]] = []
    monkeypatch.setattr(runner, "LATEST", latest)
    monkeypatch.setattr(runner, "PARTIAL", tmp_path / "partial.json")
    monkeypatch.setattr(runner, "write", lambda runs, interpreters: written.append(runs))
    keep(at("first", {"produce-1k": 1.0, "produce-100": 1.0}), quick=False, whole=True)
    keep(at("part", {"produce-100": 2.0}), quick=False, whole=False)
    keep(at("quick", {"produce-100": 3.0}), quick=True, whole=False)
    assert [run.commit for run in load(latest)] == ["first", "part"]
    assert [[run.commit for run in runs] for runs in written] == [["first"], ["first", "part"]]
    keep(at("whole", {"produce-1k": 4.0}), quick=False, whole=True)
    assert [run.commit for run in load(latest)] == ["whole"]


class Noted(Server):
    """A server that only notes whether it runs."""

    __slots__ = ("up",)

    up: bool

    def start(self) -> float:
        self.up = True
        return 0.0

    def stop(self) -> None:
        self.up = False


@pytest.mark.process
def test_rows_of_clusters_are_measured_when_no_other_broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Noted("penstock", 0, [], Path("log"))
    server.up = False
    seen: list[tuple[str, bool]] = []

    def note(name: str, brokers: int) -> Row:
        def see(contender: Contender, scale: float) -> Values:
            seen.append((name, server.up))
            return {}

        return Row(name, "", (), see, heavy=True, brokers=brokers)

    monkeypatch.setattr(runner, "_compile", lambda: None)
    monkeypatch.setattr(runner, "_touch_memory", lambda: None)
    monkeypatch.setattr(runner, "STARTERS", {"penstock": (lambda folder, settings: server, Cluster)})
    measure([note("three", 3), note("one", 1)], ["penstock"], quick=True)
    assert seen == [("one", True), ("three", False)]


def test_each_second_round_begins_with_the_last_contender() -> None:
    """With the same code, the first one of a round took up to a tenth more CPU per message."""
    order: list[str] = []

    def note(contender: Contender, scale: float) -> Values:
        order.append(contender.name)
        return {}

    server = Server("one", 0, [], Path("log"))
    contenders = [Contender(name, server, lambda *_: server, penstock_cluster) for name in ("one", "other")]
    run = a_run()
    run.rounds = 2
    runner._rounds(run, [Row("row", "", (), note)], contenders)
    assert order == ["other", "one", "one", "other", "other", "one"]


def test_the_page_has_the_best_and_the_median_of_each_interpreter() -> None:
    measured = Run("2 cores", {}, "abc1234", 3, 1.0, ["3.11.7", "3.13.0"], date="2026-11-19")
    for python, seconds in (("3.11.7", (3.0, 2.0, 4.0)), ("3.13.0", (1.0, 2.5, 2.0))):
        for value in seconds:
            measured.add(INTERPRETERS_ROW, python, {"produce, s": value})
    shown = page([a_run(CPU_per_million={"penstock": [0.7]})], [measured])
    assert "## Newer interpreters" in shown
    assert "of 3 rounds, at commit abc1234, measured on 2026-11-19." in " ".join(shown.split())
    assert "| Python | produce, s |\n|---|--:|\n| 3.11.7 | 2 (3) |\n| 3.13.0 | 1 (2) |" in shown
    assert "Newer interpreters" not in page([a_run(CPU_per_million={"penstock": [0.7]})])
