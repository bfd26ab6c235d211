"""Measured values and the circumstances they were measured in, kept as JSON.

The file holds several runs, the newest last, so that some rows can be measured again after a change: a run
takes over the rows that it measured, and what is left of an older one keeps its own commit and day.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

import penstock

FOLDER = Path(__file__).with_name("results")
LATEST = FOLDER / "latest.json"
COMPARED = FOLDER / "compare.json"
CORES = FOLDER / "cores.json"
SEMANTICS = FOLDER / "semantics.json"
INTERPRETERS = FOLDER / "interpreters.json"
INTERPRETERS_ROW = "interpreters"
"""The row of a run of several interpreters, whose contenders are the versions of Python."""
PARTIAL = FOLDER / "partial.json"
REPOSITORY = Path(__file__).resolve().parent.parent
WRITTEN = (
    "bench/results",
    "docs/benchmarks",
    "docs/benchmarks.md",
    "docs/comparison.md",
    "docs/cores.md",
    "docs/planning.md",
    "src/penstock/planning/coefficients.json",
)
"""Files that a run writes itself: changes of them do not count as a changed commit."""
REASON_CHARACTERS = 160
"""The most characters of an error's text that a page shows."""
_FOLDERS = re.compile(r"(?<![\w/.])/(?:[\w.@+~-]+/)+")


@dataclass(slots=True)
class Run:
    """One run. `values[row][metric][contender]` lists a value per round."""

    machine: str
    versions: dict[str, str]
    commit: str
    rounds: int
    scale: float
    contenders: list[str]
    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    """The rows that could not be measured, each with the reason."""
    date: str = ""
    """The day, in UTC; empty in files from before days were noted."""
    record_validation: str = "header"
    """`penstock.record.validation` of the brokers measured; files from before it have the level of then."""
    circumstances: str = ""
    """What a reader must know about this run, such as other work on the machine."""
    absent: dict[str, str] = field(default_factory=dict)
    """The contenders that this machine does not have, each with the reason."""

    def add(self, row: str, contender: str, measured: dict[str, float]) -> None:
        for metric, value in measured.items():
            by_contender = self.values.setdefault(row, {}).setdefault(metric, {})
            by_contender.setdefault(contender, []).append(float(f"{value:.4g}"))

    def fail(self, row: str, contender: str, error: Exception) -> None:
        """Note an error in one line. The run prints the whole text."""
        self.failures.append(f"{_named(row)}{contender}: {_in_one_line(error)}")

    def without(self, rows: Collection[str]) -> Run:
        """The run without `rows`, which newer runs have measured."""
        gone = tuple(map(_named, rows))
        return replace(
            self,
            values={row: measured for row, measured in self.values.items() if row not in rows},
            failures=[failure for failure in self.failures if not failure.startswith(gone)],
        )


def _named(row: str) -> str:
    """How a failure of the row begins."""
    return f"{row} on "


def _in_one_line(error: Exception) -> str:
    """The type and the first line of the text, cut, with only the last names of this machine's paths."""
    lines = str(error).strip().splitlines()
    text = _FOLDERS.sub("", lines[0]).strip().rstrip(":") if lines else ""
    if len(text) > REASON_CHARACTERS:
        text = f"{text[:REASON_CHARACTERS].rstrip()}…"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind


def merged(older: Sequence[Run], newest: Run) -> list[Run]:
    """The runs with rows that no newer run has."""
    runs = (*(run.without(newest.values) for run in older), newest)
    return [run for run in runs if run.values or run.failures]


def together(runs: Sequence[Run]) -> Run:
    """All rows as if of one run, in the circumstances of the newest."""
    return replace(
        runs[-1],
        contenders=list(dict.fromkeys(name for run in runs for name in run.contenders)),
        values={row: measured for run in runs for row, measured in run.values.items()},
        failures=[failure for run in runs for failure in run.failures],
        absent={name: reason for run in runs for name, reason in run.absent.items()},
    )


def save(path: Path, runs: Sequence[Run]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=1) + b"\n")


def load(path: Path) -> list[Run]:
    """The runs of a file; none where there is no file. A file from before there were parts has one run."""
    if not path.exists():
        return []
    found = msgspec.json.decode(path.read_bytes(), type=Run | list[Run])
    return found if isinstance(found, list) else [found]


def machine() -> str:
    """The machine in words that say nothing of where it stands."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, {memory_gb:.0f} GB, Linux {platform.release().partition('-')[0]}"


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("uvloop", "crc32c")}
    return {"Python": platform.python_version(), "penstock": penstock.__version__, **packages}


def commit() -> str:
    """The commit measured, marked where the working tree differs from it."""
    head = _git("rev-parse", "--short", "HEAD")
    unless = [f":!{path}" for path in WRITTEN]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *unless)
    return f"{head}-dirty" if head and changed else head or "unknown"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
