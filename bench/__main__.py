"""`python -m bench`: measure, print the table, keep it as JSON, render `docs/benchmarks.md`.

Settings come from the environment, as `make bench ROWS=… QUICK=1 AGAINST=kafka` passes them. AGAINST may also
name the path of another Python that has the package: every row runs on both in turn. A run of some rows
replaces these on the page and leaves the rest as they were. A quick run (smaller, without the heavy rows) is
printed and stored in `results/partial.json`. A row that fails does not end the run; the exit code is then not
0.
"""

from __future__ import annotations

import compileall
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from pathlib import Path

from bench import coefficients, load, results
from bench.report import terminal, write
from bench.results import INTERPRETERS, LATEST, PARTIAL, Run, commit, machine, merged, save, today, versions
from bench.rows import ROWS
from bench.table import ClusterMaker, Contender, Row, Starter, Values
from docs import measured, planned
from lab import LabError, MissingTool
from lab.apache_kafka import apache_kafka
from lab.cluster import kafka_cluster, penstock_cluster
from lab.penstock import penstock
from penstock.model.config.topic_keys import TOPIC_KEYS
from tools.arguments import Arguments

ROUNDS = 5
QUICK_ROUNDS = 2
QUICK_SCALE = 0.3
TOUCHED_BYTES = 3 << 30
STARTERS: dict[str, tuple[Starter, ClusterMaker]] = {
    "penstock": (penstock, penstock_cluster),
    "kafka": (apache_kafka, kafka_cluster),
}


def main() -> int:
    Arguments(prog="python -m bench", description=__doc__).parse_args()
    quick = os.environ.get("QUICK", "") not in ("", "0")
    names = [name for name in os.environ.get("ROWS", "").replace(",", " ").split() if name]
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        print(f"bench: no row {', '.join(sorted(unknown))}; there are {', '.join(r.name for r in ROWS)}")
        return 2
    rows = [row for row in ROWS if (row.name in names if names else not (quick and row.heavy))]
    try:
        load.compiled()
        run = measure(rows, _wanted_contenders(), quick)
    except MissingTool as missing:
        print(f"bench: SKIPPED, {missing}")
        return 0
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(terminal(run))
    keep(run, quick or not STARTERS.keys() >= set(run.contenders), whole=not names)
    for failure in run.failures:
        print(f"bench: FAILED {failure}", file=sys.stderr)
    return 1 if run.failures else 0


def _wanted_contenders() -> list[str]:
    against = os.environ.get("AGAINST", "")
    return ["penstock", *against.split()]


def keep(run: Run, quick: bool, whole: bool) -> None:
    """Store a run: a quick one, or one of other interpreters, apart; all other runs also go to the page."""
    if quick:
        save(PARTIAL, [run])
        return
    runs = [run] if whole else merged(results.load(LATEST), run)
    save(LATEST, runs)
    write(runs, results.load(INTERPRETERS))
    measured.write()
    if coefficients.write_if_complete(runs):
        planned.write()


def measure(rows: list[Row], names: list[str], quick: bool) -> Run:
    """All rounds of the rows: those of one broker first, those of clusters when no other broker runs."""
    rounds, scale = (QUICK_ROUNDS, QUICK_SCALE) if quick else (ROUNDS, 1.0)
    _compile()
    _touch_memory()
    with ExitStack() as folders:
        contenders = _made(folders, names)
        run = Run(
            machine(),
            versions(),
            commit(),
            rounds,
            scale,
            [each.name for each in contenders],
            date=today(),
            record_validation=str(TOPIC_KEYS["penstock.record.validation"].default),
        )
        alone = [row for row in rows if row.brokers == 1]
        if alone:
            with ExitStack() as running:
                for contender in contenders:
                    contender.server.start()
                    running.callback(contender.server.stop)
                _rounds(run, alone, contenders)
        _rounds(run, [row for row in rows if row.brokers > 1], contenders)
    return run


def _rounds(run: Run, rows: Sequence[Row], contenders: Sequence[Contender]) -> None:
    """In turn. Round 0 warms up a just-in-time compiler, the page cache and all buffers.

    Each second round begins with the last contender: the first pays for what the row before left behind.
    """
    for round_number in range(run.rounds + 1):
        for row in rows:
            if is_due(row, round_number):
                for contender in measured_on(row, contenders)[:: 1 if round_number % 2 else -1]:
                    measure_row(run, row, contender, round_number)


def measured_on(row: Row, contenders: Sequence[Contender]) -> list[Contender]:
    """The contenders that a row is measured on: of rows that are about Penstock, other versions of it."""
    own = [each for each in contenders if row.runs_package and each.name not in STARTERS]
    return [*contenders[:1], *own] if row.alone else list(contenders)


def is_due(row: Row, round_number: int) -> bool:
    if row.heavy:
        return 1 <= round_number <= (row.rounds or 1)
    return row.rounds is None or round_number <= row.rounds


def measure_row(run: Run, row: Row, contender: Contender, round_number: int) -> None:
    """Add the row's values, or its failure: the other rows of a long run are still useful."""
    began = time.perf_counter()
    try:
        found = row.measure(contender, run.scale)
    except Exception as error:  # noqa: BLE001 - the error is reported at the end
        run.fail(row.name, contender.name, error)
        shown = f"FAILED, {error!r}"
    else:
        measured = found if isinstance(found, list) else [found]
        for values in measured if round_number else ():
            run.add(row.name, contender.name, values)
        shown = "; ".join(map(_shown, measured))
    took = f"{time.perf_counter() - began:.0f} s"
    print(f"  round {round_number} {contender.name} {row.name} ({took}): {shown}", file=sys.stderr)


def _shown(values: Values) -> str:
    return ", ".join(f"{metric} {value:,.4g}" for metric, value in values.items())


def _made(folders: ExitStack, names: list[str]) -> list[Contender]:
    """The contenders, not started, in folders that go with the stack."""
    contenders = []
    for name in names:
        starter, cluster = _starters(name)
        python = sys.executable if name in STARTERS else name
        name = Path(name).name
        folder = Path(folders.enter_context(tempfile.TemporaryDirectory(prefix=f"penstock-bench-{name}-")))
        try:
            contenders.append(Contender(name, starter(folder, {}), starter, cluster, python))
        except MissingTool as missing:
            print(f"bench: SKIPPED {name}, {missing}")
    return contenders


def _starters(name: str) -> tuple[Starter, ClusterMaker]:
    """Those of a contender: one that is known, or the path of another interpreter that has the package."""
    if name in STARTERS:
        return STARTERS[name]
    if not Path(name).with_name("penstock").is_file():
        known = ", ".join(STARTERS)
        raise LabError(f"cannot run against {name!r}; there is {known}, or a path: /venv/bin/python3.14")
    return partial(penstock, python=name), partial(penstock_cluster, python=name)


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
