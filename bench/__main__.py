"""`python -m bench`: measure, print the table, keep it as JSON, render `docs/benchmarks.md`.

Settings come from the environment, as `make bench ROWS=… QUICK=1 AGAINST=kafka` passes them. Only a full run
renders the page; a part of it, or a quick one (smaller, without the heavy rows), is printed and kept in
`results/partial.json`. A row that fails does not end the run, but the exit code tells.
"""

from __future__ import annotations

import compileall
import mmap
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

from bench import load
from bench.report import terminal, write
from bench.results import LATEST, PARTIAL, Run, commit, machine, save, versions
from bench.rows import ROWS
from bench.table import Contender, Row, Starter
from lab import LabError, MissingTool
from lab.apache_kafka import apache_kafka
from lab.penstock import penstock

ROUNDS = 5
QUICK_ROUNDS = 2
QUICK_SCALE = 0.3
TOUCHED_BYTES = 3 << 30
STARTERS: dict[str, Starter] = {"penstock": penstock, "kafka": apache_kafka}


def main() -> int:
    quick = os.environ.get("QUICK", "") not in ("", "0")
    names = [name for name in os.environ.get("ROWS", "").replace(",", " ").split() if name]
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"bench: no row {', '.join(sorted(unknown))}; there are {', '.join(r.name for r in ROWS)}")
        return 2
    rows = [row for row in ROWS if (row.name in names if names else not (quick and row.heavy))]
    try:
        load.compiled()
        run = _measure(rows, _wanted_contenders(), quick)
    except MissingTool as missing:
        print(f"bench: SKIPPED, {missing}")
        return 0
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(terminal(run))
    whole = not quick and not names
    save(LATEST if whole else PARTIAL, run)
    if whole:
        write(run)
    for failure in run.failures:
        print(f"bench: FAILED {failure}", file=sys.stderr)
    return 1 if run.failures else 0


def _wanted_contenders() -> list[str]:
    against = os.environ.get("AGAINST", "")
    return ["penstock", *([against] if against else [])]


def _measure(rows: list[Row], names: list[str], quick: bool) -> Run:
    rounds, scale = (QUICK_ROUNDS, QUICK_SCALE) if quick else (ROUNDS, 1.0)
    _compile()
    _touch_memory()
    with ExitStack() as stack:
        contenders = _start(stack, names)
        run = Run(machine(), versions(), commit(), rounds, scale, [each.name for each in contenders])
        for round_number in range(rounds + 1):
            # Round 0 warms up a just-in-time compiler, the page cache and everybody's buffers.
            for row in rows:
                if is_due(row, round_number):
                    for contender in contenders[:1] if row.alone else contenders:
                        measure_row(run, row, contender, round_number)
    return run


def is_due(row: Row, round_number: int) -> bool:
    return round_number == 1 if row.heavy else row.rounds is None or round_number <= row.rounds


def measure_row(run: Run, row: Row, contender: Contender, round_number: int) -> None:
    """Add what the row gives, or that it failed: the other rows of a long run are still worth having."""
    began = time.perf_counter()
    try:
        measured = row.measure(contender, run.scale)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told at the end
        run.failures.append(f"{row.name} on {contender.name}: {error!r}")
        shown = f"FAILED, {error!r}"
    else:
        if round_number:
            run.add(row.name, contender.name, measured)
        shown = ", ".join(f"{metric} {value:,.4g}" for metric, value in measured.items())
    took = f"{time.perf_counter() - began:.0f} s"
    print(f"  round {round_number} {contender.name} {row.name} ({took}): {shown}", file=sys.stderr)


def _start(stack: ExitStack, names: list[str]) -> list[Contender]:
    contenders = []
    for name in names:
        if name not in STARTERS:
            raise LabError(f"cannot run against {name!r}; there is {', '.join(STARTERS)}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"penstock-bench-{name}-")))
        try:
            server = STARTERS[name](folder, {})
        except MissingTool as missing:
            print(f"bench: SKIPPED {name}, {missing}")
            continue
        server.start()
        stack.callback(server.stop)
        contenders.append(Contender(name, server, STARTERS[name]))
    return contenders


def _compile() -> None:
    """Leave byte code beside the source, as an installer does: a start must not be charged for compiling."""
    compileall.compile_dir(files("penstock"), quiet=1)  # type: ignore[arg-type]


def _touch_memory() -> None:
    """Make the machine hand out its memory now: a first touch can triple a round's kernel time."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(TOUCHED_BYTES, available // 2)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


if __name__ == "__main__":
    sys.exit(main())
