"""librdkafka's C tests: one process per test number and scenario.

The test runner picks tests by their number, so tests that share a number share a process. Never `-Q`: it
passes many tests without running them. A test that passes in no time, or whose every part skipped itself, is
a skip.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from conformance.goals import DEFAULT_SCENARIO, Goal
from conformance.kafka_tools import tool_environment
from conformance.outcome import Outcome, Verdict, one_line
from conformance.suite import Unit, Workbench, run_logged
from lab.librdkafka import Librdkafka, librdkafka

KAFKA_VERSION = "4.2.0"
VACUOUS_S = 0.001
RUNNER_SCENARIOS = frozenset({DEFAULT_SCENARIO, "noautocreate"})
STATES = {"PASSED": Verdict.PASSED, "FAILED": Verdict.FAILED, "SKIPPED": Verdict.SKIPPED}

_COLOUR = re.compile(r"\x1b\[\d+m")
_SUMMARY = re.compile(r"^\|\s*(\w+)\s*\|\s*(\w+)\s*\|\s*([\d.]+)s\s*\|(.*)$", re.MULTILINE)
_FAILURE = re.compile(r'### Test "(\w+)[^"]*" failed at ([^\n]*?)\(\) at [^\n]*\n([^\n]*)')
_PART = re.compile(
    r"^\[(\w+)\s*/[^\]]*\] \[ [^\n]*: (PASS|SKIP)(?:: ([^\n]*?)| \([\d.]+s\))? \]$", re.MULTILINE
)
# 0101 only says it when messages come from the wrong broker, and passes.
_COMPLAINT = re.compile(r"^\[(0101\w*)\s*/[^\]]*\] (rxbytes was not|expecting rxbytes)([^\n]*)", re.MULTILINE)
_RANDOM_TOPIC = re.compile(r"rdkt_rnd[0-9a-f]+_")


class LibrdkafkaSuite:
    """The tests with consumers of one group protocol; those of the new one are a suite of their own."""

    def __init__(self, protocol: str = "classic") -> None:
        self.name = "librdkafka" if protocol == "classic" else f"librdkafka-{protocol}"
        self._protocol = protocol
        self._build: Librdkafka | None = None

    def prepare(self) -> None:
        self._build = librdkafka()

    def units(self, goals: Sequence[Goal]) -> list[Unit]:
        def key(goal: Goal) -> tuple[str, str]:
            return goal.test[:4], goal.scenario

        return [
            Unit(self.name, number, scenario, tuple(tests))
            for (number, scenario), tests in groupby(sorted(goals, key=key), key)
        ]

    def run(self, unit: Unit, workbench: Workbench) -> dict[str, Outcome]:
        assert self._build is not None, "prepare() first"
        log = workbench.folder / f"{self.name}-{unit.name}-{unit.scenario}.log"
        directory, environment = self._directory(workbench.folder), self._environment(unit, workbench)
        runner = [str(self._build.test_runner), "-p1", "-L"]
        ended = run_logged(runner, directory, environment, log, unit.timeout)
        return judge(log.read_text(errors="replace"), unit, ended)

    def _directory(self, folder: Path) -> Path:
        """A place for the tests' litter that looks like their source folder: some open `../src/…`."""
        assert self._build is not None
        directory, source = folder / "tests", folder / "src"
        directory.mkdir(exist_ok=True)
        if not source.exists():
            source.symlink_to(self._build.include)
        fixtures = directory / "fixtures"
        if not fixtures.exists():
            fixtures.symlink_to(self._build.fixtures)
        return directory

    def _environment(self, unit: Unit, workbench: Workbench) -> dict[str, str]:
        assert self._build is not None
        libraries = self._build.path_with(
            workbench.folder / "lib",
            zstd=any(goal.zstd for goal in unit.goals),
            http=any(goal.http for goal in unit.goals),
        )
        configuration = workbench.folder / "test.conf"
        configuration.write_text(_configuration(workbench.bootstrap, workbench.client))
        inherited = {key: value for key, value in os.environ.items() if key != "CI"}
        return {
            **inherited,
            "LD_LIBRARY_PATH": libraries,
            "RDKAFKA_TEST_CONF": str(configuration),
            "TESTS": unit.name,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            # The runner leaves out the tests of other scenarios, and it does not know all of ours.
            "TEST_SCENARIO": unit.scenario if unit.scenario in RUNNER_SCENARIOS else DEFAULT_SCENARIO,
            "TEST_CONSUMER_GROUP_PROTOCOL": self._protocol,
            "BROKERS": workbench.bootstrap,
            "KAFKA_PATH": str(workbench.kafka_path),
            **workbench.environment,
            **tool_environment(workbench.folder, workbench.client),
        }


def _configuration(bootstrap: str, client: Mapping[str, str]) -> str:
    settings = {
        "test.timeout.multiplier": "2",
        "test.topic.prefix": "rdkt",
        "test.topic.random": "true",
        "bootstrap.servers": bootstrap,
        **client,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def judge(output: str, unit: Unit, ended: int | None) -> dict[str, Outcome]:
    """Verdicts from what the test runner printed; `ended` is its exit status, None where it hung."""
    text = _RANDOM_TOPIC.sub("", _COLOUR.sub("", output))
    rows = {row[1]: row for row in _SUMMARY.finditer(text)}
    return {goal.test: _verdict(goal.test, text, rows.get(goal.test), unit, ended) for goal in unit.goals}


def _verdict(test: str, text: str, row: re.Match[str] | None, unit: Unit, ended: int | None) -> Outcome:
    if row is None or row[2] not in STATES:
        if ended is None:
            return Outcome(Verdict.TIMEOUT, unit.timeout, f"no end after {unit.timeout:.0f} s")
        reason = _failure(test, text) or f"test runner ended with {ended} and no verdict: {_tail(text)}"
        return Outcome(Verdict.FAILED, 0.0, one_line(reason))
    verdict, seconds, said = STATES[row[2]], float(row[3]), row[4].strip()
    if verdict is Verdict.FAILED:
        said = said or _failure(test, text) or _tail(text)
    elif verdict is Verdict.PASSED:
        verdict, said = _look_closer(test, text, seconds)
    return Outcome(verdict, seconds, one_line(said))


def _look_closer(test: str, text: str, seconds: float) -> tuple[Verdict, str]:
    """Whether a pass is one: the runner also counts tests that skipped every part, or only complained."""
    complaint = next((found for found in _COMPLAINT.finditer(text) if found[1] == test), None)
    if complaint is not None:
        return Verdict.FAILED, f"{complaint[2]}{complaint[3]}"
    parts = [part for part in _PART.finditer(text) if part[1] == test]
    skipped = [part[3] for part in parts if part[2] == "SKIP"]
    passed = len(parts) - len(skipped)
    if skipped and not passed:
        return Verdict.SKIPPED, f"every part skipped itself: {skipped[0]}"
    if seconds < VACUOUS_S:
        return Verdict.SKIPPED, "ended at once without doing anything"
    if skipped:
        return Verdict.PASSED, f"{len(skipped)} of {passed + len(skipped)} parts skipped: {skipped[0]}"
    return Verdict.PASSED, ""


def _failure(test: str, text: str) -> str:
    return next((f"{found[2]}: {found[3]}" for found in _FAILURE.finditer(text) if found[1] == test), "")


def _tail(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines()[-3:])
