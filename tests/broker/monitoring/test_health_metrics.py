"""Health in the metrics: levels by part, and findings by code."""

from __future__ import annotations

from penstock.broker.monitoring.pages import collect_health
from penstock.observability.exposition import Format, Page
from penstock.observability.health import (
    BrokerFacts,
    ClusterFacts,
    TopicFacts,
    broker_health,
    cluster_health,
    topic_health,
)
from penstock.observability.health_merge import BrokerReport
from penstock.observability.metrics import METRICS
from tests.broker.monitoring.scrapes import Scraped


def test_levels_and_findings() -> None:
    findings = [
        *broker_health(BrokerFacts(directories_full=["/a", "/b"], damaged_ranges=1)).findings,
        *cluster_health(ClusterFacts(has_controller=False)).findings,
        *topic_health("t", TopicFacts(offline=1)).findings,
    ]
    page = Page(METRICS)
    collect_health(page, BrokerReport(1, findings))
    found = Scraped(b"".join(page.render(Format.PROMETHEUS)).decode())
    levels = {
        part: found.value("penstock_health_level", part=part) for part in ("broker", "cluster", "clients")
    }
    assert levels == {"broker": 3, "cluster": 2, "clients": 0}
    assert found.value("penstock_health_level", part="all") == 3
    assert found.value("penstock_health_findings", part="broker", code="directory_full") == 2
    # Topics are counted by the cluster's findings: their number has no limit.
    assert {labels["part"] for labels in found.labels("penstock_health_findings")} == {"broker", "cluster"}
