"""Second tries, dead brokers, missing tools, and the choice of the subset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.brokers import ExternalBrokers
from conformance.goals import Goal
from conformance.outcome import Outcome, Results, Verdict
from conformance.runner import Runner, subset
from conformance.suite import Unit, Workbench
from lab import MissingTool

PASSED = Outcome(Verdict.PASSED, 1.0)
FAILED = Outcome(Verdict.FAILED, 1.0, "no")


class ScriptedSuite:
    """Each test's verdicts, one after the other."""

    name = "librdkafka"

    def __init__(self, script: dict[str, list[Outcome]], missing: str = "") -> None:
        self.script = script
        self.missing = missing

    def prepare(self) -> None:
        if self.missing:
            raise MissingTool(self.missing)

    def units(self, goals: Sequence[Goal]) -> list[Unit]:
        return [Unit(self.name, goal.test, goal.scenario, (goal,)) for goal in goals]

    def run(self, unit: Unit, workbench: Workbench) -> dict[str, Outcome]:
        return {test: self.script[test].pop(0) for test in unit.tests}


class MortalBrokers(ExternalBrokers):
    """Dies after the named number of units."""

    def __init__(self, units: int) -> None:
        super().__init__("broker:1")
        self.left = units

    def obituary(self) -> str:
        self.left -= 1
        return "" if self.left else "the broker died: out of memory"


def goal(test: str) -> Goal:
    return Goal("librdkafka", test, "broker", 1.0)


def run(suite: ScriptedSuite, recorded: Results, broker: ExternalBrokers, said: list[str]) -> Results:
    runner = Runner([suite], broker, Path(), Path(), said.append)
    return runner.run([goal(test) for test in suite.script], recorded)


def test_a_recorded_pass_gets_a_second_try() -> None:
    suite = ScriptedSuite({"a": [FAILED, PASSED], "b": [FAILED, FAILED]})
    recorded = {"librdkafka": {"a": PASSED, "b": PASSED}}
    found = run(suite, recorded, ExternalBrokers("broker:1"), [])
    assert found == {"librdkafka": {"a": PASSED, "b": FAILED}}


def test_a_test_that_never_passed_is_tried_once() -> None:
    suite = ScriptedSuite({"a": [FAILED], "b": [FAILED]})
    found = run(suite, {"librdkafka": {"a": FAILED}}, ExternalBrokers("broker:1"), [])
    assert found == {"librdkafka": {"a": FAILED, "b": FAILED}}


def test_a_test_that_kills_the_broker_has_failed_even_if_it_passed() -> None:
    suite = ScriptedSuite({"a": [PASSED], "b": [PASSED]})
    found = run(suite, {}, MortalBrokers(units=2), [])["librdkafka"]
    assert found["a"] == PASSED
    assert found["b"] == Outcome(Verdict.FAILED, 1.0, "the broker died: out of memory")


def test_scenarios_run_one_after_the_other_the_default_first() -> None:
    said: list[str] = []
    suite = ScriptedSuite({test: [PASSED] for test in "abcd"})
    scenarios = {"a": "noautocreate", "b": "default", "c": "noautocreate", "d": "default"}
    goals = [
        Goal("librdkafka", test, "broker", 1.0, scenario=scenario) for test, scenario in scenarios.items()
    ]
    Runner([suite], ExternalBrokers("broker:1"), Path(), Path(), said.append).run(goals, {})
    assert [line.split()[-1] for line in said] == ["b", "d", "a", "c"]


def test_a_missing_tool_skips_the_suite_in_one_line() -> None:
    said: list[str] = []
    suite = ScriptedSuite({"a": []}, missing="npm not found on this machine")
    assert run(suite, {}, ExternalBrokers("broker:1"), said) == {}
    assert said == ["SKIPPED  librdkafka: npm not found on this machine"]


@pytest.mark.parametrize(("budget", "chosen"), [(3.0, "a"), (6.0, "ab"), (100.0, "abc")])
def test_the_subset_takes_the_quickest_recorded_passes(budget: float, chosen: str) -> None:
    goals = [goal("0003c"), goal("0001a"), goal("0002b"), goal("0004d")]
    seconds = {"0001a": 1.0, "0002b": 2.0, "0003c": 9.0}
    recorded = {"librdkafka": {test: Outcome(Verdict.PASSED, taken) for test, taken in seconds.items()}}
    recorded["librdkafka"]["0004d"] = FAILED
    assert "".join(picked.test[-1] for picked in subset(goals, recorded, budget)) == chosen


def test_the_subset_counts_tests_that_share_a_process_together() -> None:
    goals = [goal("0001a"), goal("0001b"), goal("0002c")]
    slow = Outcome(Verdict.PASSED, 3.0)
    recorded = {"librdkafka": {"0001a": PASSED, "0001b": slow, "0002c": slow}}
    assert [picked.test for picked in subset(goals, recorded, 5.0)] == ["0002c"]


def test_the_subset_leaves_out_tests_that_fail_on_a_busy_machine() -> None:
    goals = [goal("0001a"), replace(goal("0002b"), timed=True)]
    recorded = {"librdkafka": {"0001a": PASSED, "0002b": PASSED}}
    assert [picked.test for picked in subset(goals, recorded, 100.0)] == ["0001a"]


def test_each_unit_is_kept_before_the_next_one_runs() -> None:
    kept: list[Results] = []
    suite = ScriptedSuite({"0001": [PASSED], "0002": []})
    runner = Runner([suite], ExternalBrokers("broker:1"), Path(), Path(), lambda _: None, kept.append)
    with pytest.raises(IndexError):  # the run is interrupted in the second unit
        runner.run([goal("0001"), goal("0002")], {})
    assert kept == [{"librdkafka": {"0001": PASSED}}]
