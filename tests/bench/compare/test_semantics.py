"""The scenarios of SQS and SNS: what is recorded of them, and how the page shows it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bench.compare.page import page
from bench.compare.semantics import aws, ours, runner
from bench.compare.semantics.runner import observe_all, record
from bench.compare.semantics.scenarios import OBSERVED, SCENARIOS, SYSTEMS
from bench.compare.semantics.section import section
from bench.results import SEMANTICS, Run, load
from lab import LabError
from lab.home import MissingTool


def a_run() -> Run:
    return Run("a machine", {"moto": "5"}, "abc1234", 1, 1.0, list(SYSTEMS), date="2026-01-01")


def cells(run: Run, name: str) -> list[str]:
    """The cells of a scenario, by system as in `SYSTEMS`."""
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    (line,) = (line for line in section([run]) if line.startswith(f"| {scenario.statement} |"))
    return [cell.strip() for cell in line.split("|")[2:-2]]


def test_cells_have_the_observed_semantics() -> None:
    run = a_run()
    for system, value in (("penstock", 1.0), ("elasticmq", 0.0), ("moto-sqs", 1.0), ("moto-sns", 0.0)):
        run.add("count", system, {OBSERVED: value})
    assert cells(run, "count") == ["yes", "no", "yes", "no"]


def test_a_system_without_such_a_thing_has_a_reason() -> None:
    run = a_run()
    run.add("fan-out", "penstock", {OBSERVED: 1.0})
    run.add("fan-out", "moto-sns", {OBSERVED: 1.0})
    text = "\n".join(section([run]))
    assert cells(run, "fan-out") == ["yes", "– (2)", "– (2)", "yes"]
    assert "- (2) a queue gives each message to one consumer; SNS makes the copies" in text


def test_a_scenario_that_raises_is_a_failure_and_not_an_observation() -> None:
    run = a_run()

    def observe(name: str) -> bool:
        if name == "order":
            raise RuntimeError("no message came in 15 s")
        return name != "return"

    record(run, "moto-sqs", observe)
    assert "order" not in run.values
    assert run.failures == ["order on moto-sqs: RuntimeError: no message came in 15 s"]
    assert cells(run, "order")[2] == "failed"
    assert (cells(run, "return")[2], cells(run, "count")[2]) == ("no", "yes")
    assert f"- {run.failures[0]}" in list(section([run]))


def test_only_scenarios_that_a_system_has_are_run() -> None:
    run, asked = a_run(), []

    def observe(name: str) -> bool:
        asked.append(name)
        return True

    record(run, "elasticmq", observe)
    assert "redelivery" in asked and not {"fan-out", "filter", "late-subscriber"} & set(asked)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MissingTool("mvn not found on this machine"), "mvn not found on this machine"),
        (LabError("pip ended with 1:\nat /a/path"), "it could not be downloaded or installed"),
    ],
)
def test_a_system_that_cannot_be_installed_is_named(
    error: LabError, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(*_: object) -> Any:
        raise error

    monkeypatch.setattr(runner, "_made", absent)
    run = a_run()
    observe_all(run)
    assert run.absent == dict.fromkeys(SYSTEMS, reason)
    assert run.failures == []
    assert f"- SQS in ElasticMQ was not run: {reason}." in list(section([run]))
    assert capsys.readouterr().err.count("compare: SKIPPED") == len(SYSTEMS)


def test_a_system_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*servers: object) -> Any:
        raise LabError("the port is taken")

    monkeypatch.setattr(runner, "_made", lambda system, home: (None, None))
    monkeypatch.setattr(runner, "started", broken)
    run = a_run()
    observe_all(run)
    assert run.failures == [f"start on {system}: LabError: the port is taken" for system in SYSTEMS]
    assert run.absent == {}
    assert cells(run, "count") == ["failed"] * 4


def test_a_system_that_was_not_run_has_no_column() -> None:
    run = a_run()
    run.absent["elasticmq"] = "java not found on this machine"
    run.add("count", "penstock", {OBSERVED: 1.0})
    run.add("count", "moto-sqs", {OBSERVED: 1.0})
    run.add("count", "moto-sns", {OBSERVED: 0.0})
    assert cells(run, "count") == ["yes", "yes", "no"]


def test_the_page_lists_the_limits_of_emulators() -> None:
    measured = Run("a machine", {}, "abc1234", 1, 1.0, [])
    text = page([measured])
    assert "Emulators of them say nothing about speed, and a service can differ" in text
    assert "Not run yet." in text
    assert "Not run yet." not in page([measured], [a_run()])


def test_each_side_has_the_scenarios_of_the_list() -> None:
    in_aws = {each.name for each in SCENARIOS if set(each.systems()) - {"penstock"}}
    assert set(aws.SCENARIOS) == in_aws
    assert set(ours.SCENARIOS) == {each.name for each in SCENARIOS if "penstock" in each.systems()}


class FakeQueue(aws.Queue):
    """A queue whose next message comes, or not, after no time."""

    def __init__(self, message: dict[str, Any] | None) -> None:
        self.message = message

    def receive(self, patience_s: float = 0.0) -> dict[str, Any] | None:
        return self.message


def test_a_message_that_comes_too_early_or_never_is_not_hidden() -> None:
    now = time.monotonic()
    assert not aws._comes_after(FakeQueue({}), now, 2.0)
    assert not aws._comes_after(FakeQueue(None), now - 3.0, 2.0)
    assert aws._comes_after(FakeQueue({}), now - 3.0, 2.0)


def test_the_published_results_are_of_the_known_scenarios_and_systems() -> None:
    (run,) = load(SEMANTICS)
    assert set(run.values) <= {each.name for each in SCENARIOS}
    for scenario in SCENARIOS:
        observed = set(run.values.get(scenario.name, {}).get(OBSERVED, {}))
        assert not observed & set(scenario.without)
        missing = set(scenario.systems()) - observed - set(run.absent)
        failed = {failure.partition(" on ")[2].partition(":")[0] for failure in run.failures}
        assert missing <= failed, scenario.name
