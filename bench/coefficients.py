"""The coefficients of `penstock plan`, from the results: `python -m bench.coefficients` writes them into the
package, and renders the pages that show plans.

Medians, not best rounds: a plan must hold on an ordinary day. A run of the benchmarks that measures one of
the rows writes the file, too.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.results import LATEST, REPOSITORY, Run, load
from docs import planned
from penstock.planning.coefficients import FILE, Coefficient, Coefficients, encode
from tools.arguments import Arguments

PATH = REPOSITORY / "src" / "penstock" / "planning" / FILE
REPLICAS = 3
IDLE_REPLICAS = 3000
REQUEST_BYTES = 16 << 10
SMALL_BYTES = 100
NEEDED = (
    "produce-1k",
    "produce-100",
    "consume-1k",
    "cluster-produce-1k",
    "partitions",
    "cluster-idle",
    "start",
    "connections",
)


class Rows:
    """The rows of the runs, the newest of each."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {row: run for run in runs for row in run.values}

    @property
    def machine(self) -> str:
        return self._runs["produce-1k"].machine

    def median(self, row: str, metric: str) -> float:
        return statistics.median(self._runs[row].values[row][metric]["penstock"])

    def source(self, formula: str, *rows: str) -> str:
        """The formula, with the commit and the day of each row."""
        runs = {f"{self._runs[row].commit} {self._runs[row].date}".strip() for row in rows}
        return f"{formula} ({', '.join(sorted(runs))})"


def derived(runs: Sequence[Run]) -> Coefficients:
    """The coefficients of these runs."""
    rows = Rows(runs)
    append, fetch = rows.median("produce-1k", "CPU per GB"), rows.median("consume-1k", "CPU per GB")
    replicated = rows.median("cluster-produce-1k", "CPU per GB")
    small = rows.median("produce-100", "CPU per million")
    produced, fetched = rows.median("partitions", "Produce at 100"), rows.median("partitions", "Fetch at 100")
    idle = rows.median("cluster-idle", "cores")

    def of(value: float, formula: str, *named: str) -> Coefficient:
        return Coefficient(float(f"{max(0.0, value):.4g}"), rows.source(formula, *named))

    return Coefficients(
        machine=rows.machine,
        append_s_per_gb=of(append, "produce-1k", "produce-1k"),
        record_us=of(
            small - append * SMALL_BYTES / 1000, "produce-100 without its bytes", "produce-100", "produce-1k"
        ),
        fetch_s_per_gb=of(fetch, "consume-1k", "consume-1k"),
        replicate_s_per_gb=of(
            (replicated - append) / (REPLICAS - 1) - fetch,
            "(cluster-produce-1k - produce-1k) / 2 followers - consume-1k",
            "cluster-produce-1k",
            "produce-1k",
            "consume-1k",
        ),
        produce_request_us=of(
            produced - append * REQUEST_BYTES / 1000, "16-KB Produce without its bytes", "partitions"
        ),
        fetch_request_us=of(
            fetched - fetch * REQUEST_BYTES / 1000, "16-KB Fetch without its bytes", "partitions"
        ),
        idle_cores_per_replica=of(idle / IDLE_REPLICAS, "cluster-idle / 3,000 replicas", "cluster-idle"),
        resident_mb=of(rows.median("start", "resident, idle"), "start", "start"),
        connection_kb=of(rows.median("connections", "memory per connection"), "connections", "connections"),
    )


def write(runs: Sequence[Run], path: Path = PATH) -> None:
    path.write_bytes(encode(derived(runs)))


def write_if_complete(runs: Sequence[Run], path: Path = PATH) -> bool:
    """Write the file, unless a row is missing: a first run of some rows, or a row that failed.

    Returns true if the file was written.
    """
    measured = {row for run in runs for row in run.values}
    if not measured.issuperset(NEEDED):
        return False
    write(runs, path)
    return True


def main() -> int:
    Arguments(prog="python -m bench.coefficients", description=__doc__).parse_args()
    write(load(LATEST))
    planned.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
