"""Runs tests that failed beside the other parts of `make test` again, alone, and lists the unstable ones.

    python3 -m tools.unstable FILE

A run of pytest that finds `PENSTOCK_FAILED` in its environment appends its failed tests to that file
(`tests/conftest.py`), one line each: interpreter, number of runs, test. This program has the verdict.

Invariant: a test that counts records or transactions is run again only if it found no wrong number, but ran
out of time: then three times, and each run must pass. Any other failure of it is final.
Invariant: if more than `LIMIT` tests of one run failed, none of them is run again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LIMIT", "VARIABLE", "Verdict", "is_timeout", "main", "planned", "verdict"]

VARIABLE: Final = "PENSTOCK_FAILED"
#: failed tests of one run of pytest; more of them are no accident of time
LIMIT: Final = 4
#: runs that a counting test has to pass after a timeout: a record that comes late is no record that is lost
_AFTER_TIMEOUT: Final = 3
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
#: their neighbours that compare no records: output of commands, metrics, tables, plans, tools of other tests
_NOT_COUNTING: Final = (
    "tests/broker/links/test_commands.py",
    "tests/broker/links/test_metrics.py",
    "tests/broker/replica/test_fenced_brokers.py",
    "tests/broker/replica/test_throttles.py",
    "tests/chaos/test_links.py",
    "tests/chaos/test_namespaces.py",
    "tests/chaos/test_nemesis.py",
    "tests/chaos/test_watching.py",
    "tests/disasters/test_layout.py",
    "tests/disasters/test_published.py",
    "tests/disasters/test_report.py",
    "tests/disasters/test_system.py",
    "tests/disasters/test_table.py",
    "tests/linking/test_definition.py",
    "tests/rolling/test_driver.py",
    "tests/rolling/test_observing.py",
    "tests/rolling/test_planner.py",
    "tests/rolling/test_progress.py",
)


class Verdict(NamedTuple):
    """What the failures of one run of pytest mean."""

    #: tests whose failure is a defect
    final: list[str]
    #: runs that each of the other tests has to pass, alone
    again: dict[str, int]


def is_timeout(error: BaseException) -> bool:
    """Returns true if a test did not end in time: by its own limit, that of a command, a request, pytest."""
    if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
        return True
    if type(error).__name__ == "KafkaException" and error.args:
        # librdkafka's: no response in time. This program runs without the client.
        return str(error.args[0]).startswith("KafkaError{code=_TIMED_OUT,")
    return type(error).__name__ == "Failed" and str(error).startswith("Timeout (>")


def verdict(failed: Mapping[str, bool]) -> Verdict:
    """Judge failed tests one by one, by name and whether all that went wrong was a timeout."""
    if len(failed) > LIMIT:
        return Verdict([*failed], {})
    runs = {name: _runs(name, timed_out) for name, timed_out in failed.items()}
    return Verdict([name for name in runs if not runs[name]], {name: n for name, n in runs.items() if n})


def _runs(name: str, timed_out: bool) -> int:
    if not name.startswith(_COUNTING) or name.partition("::")[0] in _NOT_COUNTING:
        return 1
    return _AFTER_TIMEOUT if timed_out else 0


def planned(lines: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """The tests of the file, by the interpreter that they need and the number of runs."""
    found: dict[tuple[str, int], list[str]] = {}
    for line in lines:
        interpreter, runs, name = line.strip().split("\t", 2)
        tests = found.setdefault((interpreter, int(runs)), [])
        if name not in tests:
            tests.append(name)
    return found


def main() -> int:
    path = Path(sys.argv[1])
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    status, unstable = 0, []
    for (interpreter, runs), names in planned(lines).items():
        times = f"{runs} times" if runs > 1 else "once"
        print(f"running {len(names)} failed tests again, alone, {times}: {' '.join(names)}", flush=True)
        command = [interpreter, "-m", "pytest", "-q", *names]
        if any(subprocess.run(command, check=False).returncode for _ in range(runs)):
            status = 1
        else:
            unstable += names
    if unstable:
        print(f"{len(unstable)} unstable tests: they failed beside other tests and passed alone; mend them:")
        print(*(f"  {name}" for name in unstable), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
