"""The reports of brokers as a client gets them, by DescribeLogDirs from every broker.

Brokers of Penstock report their findings. Of other brokers, such as those of Apache Kafka, a client judges
what the protocol tells, by the same definition: directories, volumes, fenced brokers and partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.observability.health import (
    BrokerFacts,
    ClusterFacts,
    Finding,
    Level,
    Part,
    TopicFacts,
    broker_health,
    cluster_health,
    topic_health,
)
from penstock.observability.health_merge import BrokerReport
from penstock.observability.health_wire import report_of
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse

__all__ = ["NOT_AUTHORIZED", "Silence", "observed_reports"]

#: the code of a finding that says nothing about a broker: the user may not see its health
NOT_AUTHORIZED: Final = "not_authorized"


class Silence(str):
    """The reason why a broker has not answered, in place of its answer."""

    __slots__ = ()


def observed_reports(
    answers: Mapping[int, DescribeLogDirsResponse | Silence],
    cluster: ClusterFacts,
    topics: Mapping[str, TopicFacts],
) -> list[BrokerReport]:
    """A report for every broker. `cluster` and `topics` count only where a broker reports no health."""
    found: list[BrokerReport] = []
    seen = [*cluster_health(cluster).findings]
    seen += [each for name, facts in topics.items() for each in topic_health(name, facts).findings]
    for broker, answer in answers.items():
        if isinstance(answer, Silence):
            found.append(BrokerReport(broker, silence=answer))
            continue
        report = None if answer.error_code else report_of(broker, answer)
        if report is None:
            own = [_hidden()] if answer.error_code else broker_health(_facts(answer)).findings
            report = BrokerReport(broker, [*own, *seen])
        found.append(report)
    if all(report.silence for report in found):
        # No broker reports anything: what the client has seen before still holds.
        found = [report._replace(findings=seen) for report in found[:1]] + found[1:]
    return found


def _hidden() -> Finding:
    reason = "its health is not shown to this user, who may not describe the cluster"
    return Finding(Part.BROKER, Level.UNKNOWN, NOT_AUTHORIZED, reason)


def _facts(answer: DescribeLogDirsResponse) -> BrokerFacts:
    return BrokerFacts(
        directories_offline=[each.log_dir for each in answer.results if each.error_code],
        directories_full=[each.log_dir for each in answer.results if each.is_full],
        free_space={
            each.log_dir: each.usable_bytes / (each.total_bytes - each.reserved_bytes)
            for each in answer.results
            if not each.error_code and each.total_bytes > each.reserved_bytes and each.usable_bytes >= 0
        },
    )
