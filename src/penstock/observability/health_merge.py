"""Merges what brokers report about their health into one level with reasons, and renders documents.

Every view uses `merged`: `/health` with the report of one broker, `penstock health`, `penstock cluster
status` and the console with those of all brokers. A broker that does not respond is Unhealthy itself. The
cluster is Degraded by it, as the other brokers report once they have noticed, and Unhealthy while it leads
partitions. If a broker has reported, that it does not respond to another broker makes the cluster only
Degraded: a broker that is cut off from the others hears none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.observability.health import ORDER, Finding, Health, Level, Part

__all__ = ["TOPICS_MAX", "BrokerReport", "MergedHealth", "merged", "report", "report_in"]

#: a report lists so many topics by name
TOPICS_MAX: Final = 100
#: findings about one of the brokers: a broker that does not respond needs no second one
_ABOUT_BROKERS: Final = frozenset({"broker_fenced", "broker_silent", "broker_stopping"})
#: findings of a broker about another broker that is silent
_SILENCES: Final = frozenset({"broker_silent", "leader_silent"})


class BrokerReport(NamedTuple):
    """The findings of one broker; `silence` is the reason if there are none because it does not respond."""

    broker: int
    findings: Sequence[Finding] = ()
    silence: str = ""

    @property
    def health(self) -> Health:
        """The health of this broker alone: its own findings, and those of its clients."""
        if self.silence:
            finding = Finding(Part.BROKER, Level.UNHEALTHY, "silent", self.silence, str(self.broker))
            return Health.of([finding])
        return Health.of(each for each in self.findings if each.part in (Part.BROKER, Part.CLIENTS))


class MergedHealth(NamedTuple):
    """The health of a cluster. `findings` have all reasons but those of single topics."""

    level: Level
    findings: tuple[Finding, ...]
    brokers: Mapping[int, Health]
    #: the worst first, at most `TOPICS_MAX`
    topics: Mapping[str, Health]

    @property
    def reasons(self) -> list[str]:
        return [finding.reason for finding in self.findings]


def merged(reports: Iterable[BrokerReport], *, names_brokers: bool = True) -> MergedHealth:
    """Merge the reports of brokers of one cluster.

    Reasons of one broker begin with its id, unless `names_brokers` is false: then there is one report.
    """
    given = sorted(reports, key=lambda each: each.broker)
    heard = {str(report.broker) for report in given if not report.silence}
    shared: dict[tuple[str, str], Finding] = {}
    topics: dict[str, dict[str, Finding]] = {}
    own: list[Finding] = []
    for report in given:
        for finding in report.findings:
            if finding.part is Part.CLUSTER:
                if finding.code in _SILENCES and finding.subject in heard:
                    reason = f"{finding.reason} to broker {report.broker}"
                    finding = finding._replace(level=Level.DEGRADED, reason=reason)
                _keep_worse(shared, (finding.code, finding.subject), finding)
            elif finding.part is Part.TOPICS:
                _keep_worse(topics.setdefault(finding.subject, {}), finding.code, finding)
            elif names_brokers:
                own.append(finding._replace(reason=f"broker {report.broker}: {finding.reason}"))
            else:
                own.append(finding)
    noticed = {subject for code, subject in shared if code in _ABOUT_BROKERS}
    for report in given:
        if report.silence and str(report.broker) not in noticed:
            reason = f"broker {report.broker} does not respond: {report.silence}"
            own.append(Finding(Part.CLUSTER, Level.DEGRADED, "broker_silent", reason, str(report.broker)))
    found = Health.of([*shared.values(), *own])
    listed = {name: Health.of(each.values()) for name, each in topics.items()}
    level = found.level
    if given and all(report.silence for report in given):
        level = Level.UNHEALTHY
    return MergedHealth(
        level, found.findings, {each.broker: each.health for each in given}, _worst_topics(listed)
    )


def _keep_worse(known: dict[Any, Finding], key: Any, finding: Finding) -> None:
    """Keep the worst of the findings about one thing; the first broker's, if they are as bad."""
    before = known.get(key)
    if before is None or ORDER.index(finding.level) > ORDER.index(before.level):
        known[key] = finding


def _worst_topics(topics: Mapping[str, Health]) -> dict[str, Health]:
    ranked = sorted(topics.items(), key=lambda each: (-ORDER.index(each[1].level), each[0]))
    return dict(ranked[:TOPICS_MAX])


def report(of_broker: BrokerReport, details: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document of `/health`: the report of one broker."""
    all_of_it = merged([of_broker], names_brokers=False)
    document: dict[str, Any] = {
        "status": all_of_it.level,
        "reasons": all_of_it.reasons,
        "codes": [finding.code for finding in all_of_it.findings],
    }
    for part in Part:
        health = Health.of(each for each in of_broker.findings if each.part is part)
        document[part] = {"status": health.level, "reasons": list(health.reasons), **details.get(part, {})}
    document["findings"] = [finding._asdict() for finding in of_broker.findings]
    named = [reason for health in all_of_it.topics.values() for reason in health.reasons]
    document[Part.TOPICS]["reasons"] = named
    return document


def report_in(broker: int, document: Mapping[str, Any]) -> BrokerReport:
    """The report that a document of `/health` was made of."""
    return BrokerReport(
        broker,
        [
            Finding(**{**each, "part": Part(each["part"]), "level": Level(each["level"])})
            for each in document["findings"]
        ],
    )
