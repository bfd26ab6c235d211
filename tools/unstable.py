"""Runs tests that failed beside the other parts of `make test` once more, alone, and lists the unstable ones.

    python3 -m tools.unstable FILE

A run of pytest that finds `PENSTOCK_FAILED` in its environment appends its failed tests to that file
(`tests/conftest.py`), one line each with its interpreter, and leaves the verdict to this program.

Invariant: a test that counts records or transactions is never run again. One failure of it is a defect.
Invariant: if more than `LIMIT` tests of one run failed, none of them is run again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["LIMIT", "VARIABLE", "by_interpreter", "main", "may_run_again"]

VARIABLE: Final = "PENSTOCK_FAILED"
#: failed tests of one run of pytest; more of them are no accident of time
LIMIT: Final = 4
#: what these tests compare is acknowledged, read or committed: no load of the machine explains a difference
_COUNTING: Final = (
    "tests/backup/",
    "tests/broker/links/",
    "tests/broker/replica/",
    "tests/chaos/",
    "tests/client/test_copy_job.py",
    "tests/client/test_survival.py",
    "tests/disasters/",
    "tests/ecosystem/",
    "tests/linking/",
    "tests/raft/",
    "tests/replication/",
    "tests/rolling/",
    "tests/storage/",
    "tests/telemetry/pipeline/test_exactly_once.py",
    "tests/testing/simulation/",
    "tests/transactions/",
)


def may_run_again(failed: Iterable[str]) -> bool:
    """Returns true if the failures of a run of pytest can be accidents of time."""
    names = [*failed]
    return 0 < len(names) <= LIMIT and not any(name.startswith(_COUNTING) for name in names)


def by_interpreter(lines: Iterable[str]) -> dict[str, list[str]]:
    """The tests of the file, by the interpreter that they need."""
    found: dict[str, list[str]] = {}
    for line in lines:
        interpreter, _, name = line.strip().partition("\t")
        tests = found.setdefault(interpreter, [])
        if name not in tests:
            tests.append(name)
    return found


def main() -> int:
    path = Path(sys.argv[1])
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    status, unstable = 0, []
    for interpreter, names in by_interpreter(lines).items():
        print(f"running {len(names)} failed tests again, alone: {' '.join(names)}", flush=True)
        if subprocess.run([interpreter, "-m", "pytest", "-q", *names], check=False).returncode:
            status = 1
        else:
            unstable += names
    if unstable:
        print(f"{len(unstable)} unstable tests: they failed beside other tests and passed alone; mend them:")
        print(*(f"  {name}" for name in unstable), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
