"""Verdicts, and the files that keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
REFERENCE = FOLDER / "reference.json"
#: verdicts over SASL_SSL with ACLs
SECURED_RESULTS = FOLDER / "secured_results.json"
SECURED_REFERENCE = FOLDER / "secured_reference.json"
REASON_LENGTH_MAX = 400


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one test said. `reason` is empty for a plain pass."""

    verdict: Verdict
    seconds: float
    reason: str = ""

    @property
    def lacks_library(self) -> bool:
        """Whether the test did not run because this machine lacks a library that it was to be built with."""
        return self.verdict is Verdict.SKIPPED and self.reason.endswith("not available")

    def line(self, test: str) -> str:
        return f"{self.verdict:8} {self.seconds:7.1f} s  {test}  {self.reason}".rstrip()


Results: TypeAlias = dict[str, dict[str, Outcome]]
"""Suite name to test name to outcome."""


def one_line(text: str) -> str:
    """A reason fit for a table: one line, bounded."""
    flat = " ".join(text.split())
    return flat if len(flat) <= REASON_LENGTH_MAX else flat[: REASON_LENGTH_MAX - 1] + "…"


def load(path: Path) -> Results:
    if not path.exists():
        return {}
    stored: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())
    return {
        suite: {
            test: Outcome(Verdict(row["verdict"]), row["seconds"], row.get("reason", ""))
            for test, row in tests.items()
        }
        for suite, tests in stored.items()
    }


def save(path: Path, results: Mapping[str, Mapping[str, Outcome]]) -> None:
    """Sorted and one test per line, so that a change of the scoreboard reads well as a diff."""
    suites = []
    for suite in sorted(results):
        rows = ",\n".join(
            f"    {json.dumps(test)}: {json.dumps(_row(results[suite][test]), ensure_ascii=False)}"
            for test in sorted(results[suite])
        )
        suites.append(f"  {json.dumps(suite)}: {{\n{rows}\n  }}")
    path.write_text("{\n" + ",\n".join(suites) + "\n}\n")


def _row(outcome: Outcome) -> dict[str, str | float]:
    row: dict[str, str | float] = {"verdict": str(outcome.verdict), "seconds": round(outcome.seconds, 1)}
    if outcome.reason:
        row["reason"] = outcome.reason
    return row
