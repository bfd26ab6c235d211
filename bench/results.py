"""Measured values and the circumstances they were measured in, kept as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("results")
LATEST = FOLDER / "latest.json"
PARTIAL = FOLDER / "partial.json"


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
    """What could not be measured, and why."""

    def add(self, row: str, contender: str, measured: dict[str, float]) -> None:
        for metric, value in measured.items():
            by_contender = self.values.setdefault(row, {}).setdefault(metric, {})
            by_contender.setdefault(contender, []).append(float(f"{value:.4g}"))


def save(path: Path, run: Run) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


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
    packages = {name: version(name) for name in ("penstock", "uvloop", "crc32c")}
    return {"Python": platform.python_version(), **packages}


def commit() -> str:
    """The commit measured, marked where the working tree differs from it."""
    folder = Path(__file__).resolve().parent.parent
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=folder, capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"
