"""`python -m bench.compare`: measure, keep the results as JSON, render `docs/comparison.md`.

Settings come from the environment, as `make compare QUICK=1 CLASSES='cache synced' ROWS=latency ONLY=nats`
passes them. A run of some classes or rows replaces these on the page and leaves the rest; a run of some
systems (`ONLY`) is printed and not kept, and so is a quick one where the page has results of a full one.
`ROUNDS=2` is for less time than three rounds take. `NOTE=…` is printed on the page, for circumstances that a
reader must know. `RENDER=1` only renders the page.
`CLASSES=semantics` runs the scenarios of SQS and SNS; a run without CLASSES, ROWS and ONLY ends with them.
A system that is not on this machine is skipped with one line, and the page says so. A measurement that fails
does not end the run; the exit code is then not 0.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.compare.classes import CLASSES, CONTENDERS, class_named
from bench.compare.page import terminal, write
from bench.compare.runner import Comparison
from bench.compare.semantics.runner import new_run, observe_all
from bench.compare.systems import server_versions
from bench.compare.workloads import FULL, QUICK, ROWS
from bench.results import COMPARED, SEMANTICS, Run, commit, load, machine, merged, save, today, versions
from lab import LabError
from lab.comparison import client_versions, comparison_python
from tools.arguments import Arguments, count_from_environment

SCENARIOS = "semantics"
"""What CLASSES calls the scenarios of SQS and SNS, beside the classes of durability."""
QUICK_NOTE = (
    "A quick run: one short round, in which Kafka's just-in-time compiler is still cold. It shows orders of "
    "size, no more."
)


def main() -> int:
    Arguments(prog="python -m bench.compare", description=__doc__).parse_args()
    # Servers have sessions of their own, so this process must end them, also at a timeout.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.environ.get("RENDER"):
        write(load(COMPARED))
        return 0
    classes, rows = _wanted("CLASSES"), _wanted("ROWS")
    contenders = _wanted("ONLY") or list(CONTENDERS)
    for name, given, known in (
        ("class", classes, [*(each.name for each in CLASSES), SCENARIOS]),
        ("row", rows, [each.name for each in ROWS]),
        ("system", contenders, CONTENDERS),
    ):
        if unknown := sorted(set(given) - set(known)):
            print(f"compare: no {name} {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
            return 2
    is_whole = not (classes or rows or os.environ.get("ONLY"))
    runs: list[Run] = []
    if classes != [SCENARIOS]:
        try:
            python = comparison_python()
        except LabError as error:
            print(f"compare: {error}", file=sys.stderr)
            return 1
        runs.append(_measure(python, [name for name in classes if name != SCENARIOS], rows, contenders))
        print(terminal(runs[0]))
    if is_whole or SCENARIOS in classes:
        runs.append(_observe())
    failures = [failure for run in runs for failure in run.failures]
    for failure in failures:
        print(f"compare: FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


def _measure(python: Path, classes: Sequence[str], rows: Sequence[str], contenders: list[str]) -> Run:
    """Measure some classes, or all if none is named."""
    is_quick = os.environ.get("QUICK", "") not in ("", "0")
    size = QUICK if is_quick else FULL
    size = replace(size, rounds=count_from_environment("ROUNDS", size.rounds))
    notes = [QUICK_NOTE if is_quick else "", os.environ.get("NOTE", "")]
    run = Run(
        machine(), versions(), commit(), size.rounds, size.seconds, contenders, date=today(),
        circumstances=" ".join(filter(None, notes)),
    )  # fmt: skip
    before = load(COMPARED)
    is_kept = len(contenders) == len(CONTENDERS) and not (is_quick and any(map(_is_full, before)))
    comparison = Comparison(run, python, size, rows)
    for durability in [class_named(name) for name in classes] or CLASSES:
        comparison.measure(durability)
        if is_kept:
            _keep(before, run)
    return run


def _observe() -> Run:
    """Run the scenarios of SQS and SNS. They replace those of the last run."""
    run = new_run()
    observe_all(run)
    save(SEMANTICS, [run])
    write(load(COMPARED))
    return run


def _wanted(variable: str) -> list[str]:
    return os.environ.get(variable, "").replace(",", " ").split()


def _is_full(run: Run) -> bool:
    return not run.circumstances.startswith(QUICK_NOTE)


def _keep(before: Sequence[Run], run: Run) -> None:
    """Store the run with what older ones have beside it: after each class, because a run takes long."""
    measured = [name for name in CONTENDERS if name not in run.absent]
    run.versions |= server_versions(measured) | client_versions()
    runs = merged(before, run)
    save(COMPARED, runs)
    write(runs)


if __name__ == "__main__":
    sys.exit(main())
