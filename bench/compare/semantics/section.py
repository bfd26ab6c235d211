"""The part of `docs/comparison.md` about SQS and SNS, rendered from the recorded run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.compare.semantics.scenarios import OBSERVED, SCENARIOS, SYSTEMS, Scenario
from bench.results import Run

__all__ = ["section"]

TITLE = "## Semantics of SQS and SNS"
_ABOUT = """\
SQS and SNS are services. Emulators of them say nothing about speed, and a service can differ from its
emulator. Here the same scenarios ran on emulators and on Penstock, and the table has what was observed.
*yes*: the statement held. *no*: it did not. *–*: the system has no such thing, for the reason below the
table. With *SNS to SQS*, messages are published to a topic of SNS and received from a queue that subscribes
to it."""


def section(runs: Sequence[Run]) -> Iterator[str]:
    """The lines of the section. `runs` has the last run, or none."""
    yield TITLE
    yield ""
    yield _ABOUT
    yield ""
    if not runs:
        yield "Not run yet."
        return
    run = runs[-1]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    yield f"- commit {run.commit}, run on {run.date}; {versions}"
    for system, reason in run.absent.items():
        yield f"- {SYSTEMS[system]} was not run: {reason}."
    yield ""
    systems = [name for name in SYSTEMS if name not in run.absent]
    yield "| | " + " | ".join(SYSTEMS[name] for name in systems) + " | with Penstock |"
    yield "|---|" + "---|" * len(systems) + "---|"
    reasons: list[str] = []
    for scenario in SCENARIOS:
        cells = " | ".join(_cell(run, scenario, name, reasons) for name in systems)
        yield f"| {scenario.statement} | {cells} | {scenario.ours} |"
    yield ""
    for number, reason in enumerate(reasons, 1):
        yield f"- ({number}) {reason}"
    for failure in run.failures:
        yield f"- {failure}"


def _cell(run: Run, scenario: Scenario, system: str, reasons: list[str]) -> str:
    """What was observed; a reason for a system without such a thing is numbered in `reasons`."""
    if system in scenario.without:
        reason = scenario.without[system]
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"
    values = run.values.get(scenario.name, {}).get(OBSERVED, {}).get(system)
    if not values:
        return "failed"
    return "yes" if all(values) else "no"
