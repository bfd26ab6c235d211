"""The findings of a broker as fields of DescribeLogDirs responses."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.observability.health import Finding, Level, Part
from penstock.observability.health_merge import BrokerReport
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse, HealthFinding

__all__ = ["fields_of", "report_of"]


def fields_of(findings: Iterable[Finding]) -> list[HealthFinding]:
    return [
        HealthFinding(
            part=each.part, level=each.level, code=each.code, reason=each.reason, subject=each.subject
        )
        for each in findings
    ]


def report_of(broker: int, response: DescribeLogDirsResponse) -> BrokerReport | None:
    """The report of a broker; None if the broker does not report its health, such as one of Apache Kafka.

    Findings with a part or a level that this version does not know count as Degraded findings of the broker.
    """
    if not response.reports_health:
        return None
    return BrokerReport(broker, [_finding(each) for each in response.health])


def _finding(each: HealthFinding) -> Finding:
    part = Part(each.part) if each.part in list(Part) else Part.BROKER
    level = Level(each.level) if each.level in list(Level) else Level.DEGRADED
    return Finding(part, level, each.code, each.reason, each.subject)
