"""Verdicts read from pytest's report on kafka-python's tests."""

from __future__ import annotations

from conformance.goals import Goal
from conformance.kafka_python import judge
from conformance.outcome import Outcome, Verdict
from conformance.suite import Unit

FILE = "test_admin_integration.py"
REPORT = """\
<testsuites><testsuite>
<testcase classname="test.integration.test_admin_integration" name="test_a" time="0.5"/>
<testcase classname="test.integration.test_admin_integration" name="test_b" time="1.5">
  <failure message="assert 4 == 6&#10;[truncated; full report in element text]">long</failure></testcase>
<testcase classname="test.integration.test_admin_integration" name="test_c[x]" time="0.0">
  <skipped type="pytest.skip" message="needs zstd"/></testcase>
<testcase classname="test.integration.test_admin_integration" name="test_d" time="90.0">
  <failure message="Failed: Timeout (&gt;90.0s) from pytest-timeout.">long</failure></testcase>
</testsuite></testsuites>
"""


def unit(*names: str) -> Unit:
    goals = tuple(Goal("kafka-python", f"{FILE}::{name}", "broker", 1.0) for name in names)
    return Unit("kafka-python", FILE, "default", goals)


def test_each_kind_of_verdict() -> None:
    found = judge(REPORT, unit("test_a", "test_b", "test_c[x]", "test_d"))
    assert found == {
        f"{FILE}::test_a": Outcome(Verdict.PASSED, 0.5),
        f"{FILE}::test_b": Outcome(Verdict.FAILED, 1.5, "assert 4 == 6"),
        f"{FILE}::test_c[x]": Outcome(Verdict.SKIPPED, 0.0, "needs zstd"),
        f"{FILE}::test_d": Outcome(Verdict.TIMEOUT, 90.0, "Failed: Timeout (>90.0s) from pytest-timeout."),
    }


def test_a_test_of_a_class_has_its_name() -> None:
    name = "test_ssl_integration.py::TestSSLConnection::test_ssl_handshake"
    report = """<testsuites><testsuite><testcase time="0.5" name="test_ssl_handshake"
      classname="test.integration.test_ssl_integration.TestSSLConnection"/></testsuite></testsuites>"""
    goal = Goal("kafka-python", name, "security", 1.0)
    found = judge(report, Unit("kafka-python", "test_ssl_integration.py", "default", (goal,)))
    assert found == {name: Outcome(Verdict.PASSED, 0.5)}


def test_a_test_that_the_report_lacks_has_not_passed() -> None:
    assert judge(REPORT, unit("test_a", "test_z"))[f"{FILE}::test_z"].verdict is Verdict.TIMEOUT
    assert judge("", unit("test_a"))[f"{FILE}::test_a"].verdict is Verdict.TIMEOUT
