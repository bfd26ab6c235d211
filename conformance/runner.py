"""Run units, watch the brokers between them, and hold the verdicts against what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.brokers import Brokers
from conformance.goals import DEFAULT_SCENARIO, Goal
from conformance.outcome import Outcome, Results, Verdict, one_line
from conformance.suite import Suite, Unit, Workbench
from lab import MissingTool

PROCESS_S = 0.5
"""What starting a test process costs, roughly."""


@dataclass(slots=True)
class Runner:
    suites: Sequence[Suite]
    brokers: Brokers
    folder: Path
    kafka_path: Path
    say: Callable[[str], None] = print
    keep: Callable[[Results], None] = lambda _: None
    """Called with the verdicts of each unit: a run that is interrupted has recorded those before."""

    def run(self, goals: Sequence[Goal], recorded: Mapping[str, Mapping[str, Outcome]]) -> Results:
        """A verdict for each goal. What was recorded as passed and is not now gets a second try."""
        results: Results = {}
        for suite in self.suites:
            wanted = [goal for goal in goals if goal.suite == suite.name]
            if wanted and self._prepared(suite):
                known = recorded.get(suite.name, {})
                results[suite.name] = self._run_suite(suite, wanted, known)
        return results

    def _prepared(self, suite: Suite) -> bool:
        try:
            suite.prepare()
        except MissingTool as missing:
            self.say(f"SKIPPED  {suite.name}: {missing}")
            return False
        return True

    def _run_suite(
        self, suite: Suite, goals: Sequence[Goal], known: Mapping[str, Outcome]
    ) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        # One scenario after the other: each change of scenario starts a cluster.
        for unit in sorted(suite.units(goals), key=lambda unit: unit.scenario != DEFAULT_SCENARIO):
            found = self._run_unit(suite, unit)
            again = fallen(found, known)
            if again:
                retried = tuple(goal for goal in unit.goals if goal.test in again)
                found |= self._run_unit(suite, Unit(unit.suite, unit.name, unit.scenario, retried))
            for test in unit.tests:
                self.say(found[test].line(test))
                outcomes[test] = found[test]
            self.keep({suite.name: {test: found[test] for test in unit.tests}})
        return outcomes

    def _run_unit(self, suite: Suite, unit: Unit) -> dict[str, Outcome]:
        bootstrap = self.brokers.bootstrap(unit.scenario)
        workbench = Workbench(
            bootstrap, self.folder, self.kafka_path, self.brokers.client, self.brokers.environment
        )
        found = suite.run(unit, workbench)
        death = self.brokers.obituary()
        if death:
            reason = one_line(death)
            found = {test: Outcome(Verdict.FAILED, was.seconds, reason) for test, was in found.items()}
        return found


def fallen(found: Mapping[str, Outcome], known: Mapping[str, Outcome]) -> set[str]:
    """Tests recorded as passed that ran now and did not pass."""
    return {
        test
        for test, outcome in found.items()
        if outcome.verdict is not Verdict.PASSED
        and not outcome.lacks_library
        and test in known
        and known[test].verdict is Verdict.PASSED
    }


def subset(
    goals: Iterable[Goal], recorded: Mapping[str, Mapping[str, Outcome]], budget_s: float
) -> list[Goal]:
    """The most tests that fit the budget, from those recorded as passed: quickest first.

    Tests that share a process count as one, because they cannot be run apart. Tests that measure times are
    left out.
    """
    units: dict[tuple[str, str, str], list[Goal]] = {}
    costs: dict[tuple[str, str, str], float] = {}
    for goal in goals:
        outcome = recorded.get(goal.suite, {}).get(goal.test)
        if outcome is not None and outcome.verdict is Verdict.PASSED and not goal.timed:
            process = goal.test[:4] if goal.suite.startswith("librdkafka") else goal.test
            key = (goal.suite, process, goal.scenario)
            units.setdefault(key, []).append(goal)
            costs[key] = costs.get(key, PROCESS_S) + outcome.seconds
    chosen: list[Goal] = []
    left = budget_s
    for key in sorted(costs, key=lambda key: costs[key]):
        left -= costs[key]
        if left < 0:
            break
        chosen += units[key]
    return chosen
