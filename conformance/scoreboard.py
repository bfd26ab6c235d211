"""What a run changes in the recorded results, and the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.apis import render_apis
from conformance.goals import Goal, Goals
from conformance.outcome import Outcome, Results, Verdict
from conformance.runner import fallen

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"

INTRODUCTION = """\
# Conformance

Test suites of other projects, run against Penstock by `make conformance`: librdkafka's C tests (with
consumers of the classic protocol, and the group tests again with the consumer protocol) and
kafka-python's integration tests, unchanged. They run against three brokers in the racks RACK1 to RACK3;
topics have four partitions and three replicas by default. Two tests of kafka-python assume a single
broker and get one. This page is generated from `conformance/results.json` (`python -m conformance
--update`).

The scoreboard never gets worse: a test that is recorded as passed and fails twice is a regression, and
`make test`, which runs a subset of about four minutes, fails. A skipped test does not count as passed. A
test that cannot be built because the machine lacks a library (RapidJSON) keeps its recorded verdict.

The column *Kafka* is the verdict of the same harness on Apache Kafka 4.3.1 (`--against kafka`). The
tests that need a cluster, those of kafka-python, and 0045, 0091, 0113 and 0118 with the consumer
protocol ran in the same way there; the other verdicts are of one broker. `0045_resubscribe_with_regex`
with the consumer protocol fails on Kafka, and so do the two tests in the same process.
"""

MARKS = {
    Verdict.PASSED: "passed",
    Verdict.FAILED: "**failed**",
    Verdict.SKIPPED: "skipped",
    Verdict.TIMEOUT: "**timeout**",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A run held against the record."""

    gained: list[str]
    """Passed now, not before."""
    lost: list[str]
    """Recorded as passed, not passed now: regressions."""


def compare(found: Results, recorded: Results) -> Change:
    gained, lost = [], []
    for suite, outcomes in found.items():
        known = recorded.get(suite, {})
        lost += sorted(fallen(outcomes, known))
        gained += [
            test
            for test, outcome in outcomes.items()
            if outcome.verdict is Verdict.PASSED
            and (test not in known or known[test].verdict is not Verdict.PASSED)
        ]
    return Change(gained, lost)


def merge(found: Results, recorded: Results, *, lower: bool) -> Results:
    """The new record. A pass is lowered only where `lower` says so."""
    merged = {suite: dict(outcomes) for suite, outcomes in recorded.items()}
    for suite, outcomes in found.items():
        keep = set() if lower else fallen(outcomes, recorded.get(suite, {}))
        merged.setdefault(suite, {}).update(
            {
                test: outcome
                for test, outcome in outcomes.items()
                if test not in keep and not outcome.lacks_library
            }
        )
    return merged


def render(
    goals: Goals, results: Results, reference: Results, secured: tuple[Results, Results] = ({}, {})
) -> str:
    """The page, from recorded data alone: the same record always gives the same bytes.

    `secured` has the verdicts of Penstock and of Kafka over SASL_SSL.
    """
    sections = [INTRODUCTION, _totals(goals, results, reference), _not_passed(goals, results, reference)]
    sections.append(render_apis())
    if secured[0]:
        sections.append(_secured(goals, results, *secured))
    for suite in sorted({goal.suite for goal in goals.tests}):
        rows = [goal for goal in goals.tests if goal.suite == suite]
        sections.append(_section(goals, rows, results.get(suite, {}), reference.get(suite, {})))
    return "\n".join(sections)


def _totals(goals: Goals, results: Results, reference: Results) -> str:
    lines = ["| suite | milestone | tests | passed | Kafka passes |", "|---|---|--:|--:|--:|"]
    groups: dict[tuple[str, str], list[Goal]] = {}
    for goal in goals.tests:
        groups.setdefault((goal.suite, goal.milestone), []).append(goal)
    for (suite, milestone), rows in groups.items():
        ours, theirs = _passed(rows, results), _passed(rows, reference)
        lines.append(f"| {suite} | {milestone} | {len(rows)} | {ours} | {theirs} |")
    ours, theirs = _passed(goals.tests, results), _passed(goals.tests, reference)
    lines.append(f"| **all** | | **{len(goals.tests)}** | **{ours}** | **{theirs}** |")
    return "\n".join(lines) + "\n"


def _not_passed(goals: Goals, results: Results, reference: Results) -> str:
    lines = ["## What does not pass, and why", ""]
    lines += ["| suite | test | Penstock | Kafka | why |", "|---|---|---|---|---|"]
    for goal in sorted(goals.tests, key=lambda goal: (goal.suite, goal.test)):
        mine, his = (record.get(goal.suite, {}).get(goal.test) for record in (results, reference))
        if not _is_pass(mine):
            why = _escape(_why(goals, goal, mine, his))
            cells = (goal.suite, f"`{goal.test}`", _cells(mine)[0], _cells(his)[0], why)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _secured(goals: Goals, plain: Results, ours: Results, theirs: Results) -> str:
    """The tests that ran over SASL_SSL, and those of them that pass over plaintext only."""
    rows = [goal for goal in goals.tests if goal.test in ours.get(goal.suite, {})]
    lines = [
        "## Over SASL_SSL with ACLs",
        "",
        "`make conformance-secured` runs librdkafka's tests over SASL_SSL (PLAIN). The authorizer denies by",
        "default, and the user of the tests has ACLs. Brokers use mutual TLS among themselves.",
        "",
        f"{len(rows)} tests ran, {_passed(rows, ours)} passed. {_passed(rows, plain)} pass over plaintext.",
        "",
        "| suite | test | Penstock | Kafka | why |",
        "|---|---|---|---|---|",
    ]
    for goal in sorted(rows, key=lambda goal: (goal.suite, goal.test)):
        mine, his = ours[goal.suite][goal.test], theirs.get(goal.suite, {}).get(goal.test)
        if not _is_pass(mine):
            cells = (goal.suite, f"`{goal.test}`", _cells(mine)[0], _cells(his)[0], _escape(mine.reason))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _passed(rows: Sequence[Goal], results: Results) -> int:
    outcomes = (results.get(goal.suite, {}).get(goal.test) for goal in rows)
    return sum(map(_is_pass, outcomes))


def _is_pass(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.verdict is Verdict.PASSED


def _section(
    goals: Goals, rows: Sequence[Goal], ours: Mapping[str, Outcome], theirs: Mapping[str, Outcome]
) -> str:
    lines = [f"## {rows[0].suite}", ""]
    lines += ["| test | milestone | Penstock | s | Kafka | s | why |", "|---|---|---|--:|---|--:|---|"]
    for goal in sorted(rows, key=lambda goal: goal.test):
        mine, his = ours.get(goal.test), theirs.get(goal.test)
        why = _escape(_why(goals, goal, mine, his))
        cells = (f"`{goal.test}`", goal.milestone, *_cells(mine), *_cells(his), why)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _why(goals: Goals, goal: Goal, mine: Outcome | None, his: Outcome | None) -> str:
    waits = goals.waits_for(goal)
    if waits and not _is_pass(mine):
        return f"waits for {' and '.join(waits)}"
    if goal.note and not _is_pass(mine):
        return goal.note
    if mine is not None and mine.reason:
        return mine.reason
    return f"Kafka: {his.reason}" if his is not None and his.verdict is not Verdict.PASSED else ""


def _cells(outcome: Outcome | None) -> tuple[str, str]:
    return ("not run", "") if outcome is None else (MARKS[outcome.verdict], f"{outcome.seconds:.1f}")


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
