"""Findings in DescribeLogDirs responses."""

from __future__ import annotations

from penstock.observability.health import BrokerFacts, Finding, Level, Part, broker_health
from penstock.observability.health_merge import BrokerReport
from penstock.observability.health_wire import fields_of, report_of
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse, HealthFinding


def test_findings_arrive_as_they_were_sent() -> None:
    sent = broker_health(BrokerFacts(fenced=True, damaged_ranges=2)).findings
    response = DescribeLogDirsResponse(reports_health=True, health=fields_of(sent))
    assert report_of(7, response) == BrokerReport(7, list(sent))


def test_a_broker_that_reports_no_health_is_not_healthy_by_that() -> None:
    assert report_of(7, DescribeLogDirsResponse()) is None


def test_findings_of_a_later_version_count() -> None:
    later = HealthFinding(part="racks", level="Odd", code="new", reason="a rack is new")
    response = DescribeLogDirsResponse(reports_health=True, health=[later])
    assert report_of(7, response) == BrokerReport(
        7, [Finding(Part.BROKER, Level.DEGRADED, "new", "a rack is new")]
    )
