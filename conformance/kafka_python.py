"""kafka-python's integration tests: one process per test file, one verdict per test."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from conformance.goals import Goal
from conformance.outcome import Outcome, Verdict, one_line
from conformance.suite import Unit, Workbench, run_logged
from lab.apache_kafka import VERSION
from lab.kafka_python import kafka_python_tests

ROOT = Path(__file__).resolve().parents[1]
TEST_TIMEOUT_S = 240
#: tests that start a broker for each mechanism, and the plugin that lets them start Penstock
SECURED_FILES = frozenset({"test_sasl_integration.py", "test_ssl_integration.py"})
SECURED_FIXTURES = "conformance.secured_fixtures"

# The source tree's own pytest options and this project's plugins stay out: only the tests are theirs.
PYTEST = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"),
    *("-o", "addopts=", "-o", "log_level=INFO", "-W", "ignore"),
    *(f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal"),
)


class KafkaPythonSuite:
    name = "kafka-python"

    def __init__(self) -> None:
        self._source: Path | None = None

    def prepare(self) -> None:
        self._source = kafka_python_tests()

    def units(self, goals: Sequence[Goal]) -> list[Unit]:
        def key(goal: Goal) -> tuple[str, str]:
            return goal.test.partition("::")[0], goal.scenario

        return [
            Unit(self.name, file, scenario, tuple(tests))
            for (file, scenario), tests in groupby(sorted(goals, key=key), key)
        ]

    def run(self, unit: Unit, workbench: Workbench) -> dict[str, Outcome]:
        assert self._source is not None, "prepare() first"
        report = workbench.folder / f"{unit.name}.xml"
        report.unlink(missing_ok=True)
        # Some tests share a topic, and fail behind others.
        nodes = [f"test/integration/{test}" for test in sorted(unit.tests)]
        log = workbench.folder / f"kafka-python-{unit.name}.log"
        own = ("-p", SECURED_FIXTURES) if unit.name in SECURED_FILES else ()
        pytest = [sys.executable, *PYTEST, *own, f"--junitxml={report}", *nodes]
        run_logged(pytest, self._source, _environment(workbench, bool(own)), log, unit.timeout)
        return judge(report.read_text() if report.exists() else "", unit)


def _environment(workbench: Workbench, starts_brokers: bool) -> dict[str, str]:
    # One address is all that it takes; the clients find the other brokers through it.
    running = {} if starts_brokers else {"KAFKA_URI": f"kafka://{workbench.bootstrap.partition(',')[0]}"}
    return {
        **os.environ,
        **running,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "KAFKA_ROOT": str(workbench.kafka_path),
        "KAFKA_VERSION": VERSION,
    }


def judge(report: str, unit: Unit) -> dict[str, Outcome]:
    """Verdicts from pytest's JUnit report; one that never came means that its process hung or died."""
    lost = Outcome(Verdict.TIMEOUT, 0.0, "no verdict before its process ended")
    outcomes = dict.fromkeys(unit.tests, lost)
    if report:
        for case in ElementTree.fromstring(report).iter("testcase"):
            # The module, and the class of the test if it has one.
            module, *classes = case.attrib["classname"].removeprefix("test.integration.").split(".")
            outcomes["::".join((f"{module}.py", *classes, case.attrib["name"]))] = _verdict(case)
    return outcomes


def _verdict(case: ElementTree.Element) -> Outcome:
    seconds = float(case.attrib["time"])
    for tag in ("failure", "error", "skipped"):
        found = case.find(tag)
        if found is not None:
            message = found.attrib.get("message", "")
            verdict = Verdict.SKIPPED if tag == "skipped" else Verdict.FAILED
            if verdict is Verdict.FAILED and "Timeout" in message:
                verdict = Verdict.TIMEOUT
            return Outcome(verdict, seconds, one_line(message.partition("[truncated")[0]))
    return Outcome(Verdict.PASSED, seconds)
