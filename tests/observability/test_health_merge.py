"""Reports of several brokers become one level with reasons."""

from __future__ import annotations

from penstock.observability.health import (
    BrokerFacts,
    ClusterFacts,
    Finding,
    Level,
    TopicFacts,
    broker_health,
    cluster_health,
    topic_health,
)
from penstock.observability.health_merge import TOPICS_MAX, BrokerReport, merged, report, report_in

FULL = broker_health(BrokerFacts(directories_full=["/a"])).findings
FENCED = cluster_health(ClusterFacts(has_controller=True, fenced=[3], under_replicated=2)).findings


def test_reasons_of_one_broker_have_its_id_and_those_of_the_cluster_appear_once() -> None:
    found = merged([BrokerReport(1, FENCED), BrokerReport(2, [*FENCED, *FULL])])
    assert found.level is Level.UNHEALTHY
    assert found.reasons == [
        "broker 2: data directory /a is full",
        "2 partitions lack in-sync replicas",
        "broker 3 is fenced",
    ]
    assert {broker: health.level for broker, health in found.brokers.items()} == {
        1: Level.HEALTHY,
        2: Level.UNHEALTHY,
    }


def test_a_broker_that_does_not_respond_degrades_the_cluster_and_is_unhealthy_itself() -> None:
    found = merged([BrokerReport(1), BrokerReport(3, silence="connection refused")])
    assert (found.level, found.reasons) == (
        Level.DEGRADED,
        ["broker 3 does not respond: connection refused"],
    )
    assert found.brokers[3].level is Level.UNHEALTHY
    assert found.brokers[3].reasons == ("connection refused",)


def test_a_silent_broker_that_the_others_know_of_needs_no_second_reason() -> None:
    found = merged([BrokerReport(1, FENCED), BrokerReport(3, silence="connection refused")])
    assert found.reasons == ["2 partitions lack in-sync replicas", "broker 3 is fenced"]


def test_a_cluster_without_any_broker_is_unhealthy() -> None:
    assert merged([BrokerReport(1, silence="connection refused")]).level is Level.UNHEALTHY
    assert merged([]).level is Level.HEALTHY


def test_of_two_views_of_the_cluster_the_worse_counts() -> None:
    """A broker that is cut off knows no controller."""
    alone = cluster_health(ClusterFacts(has_controller=False)).findings
    found = merged([BrokerReport(1), BrokerReport(2, alone)])
    assert (found.level, found.reasons) == (Level.UNKNOWN, ["there is no active controller"])


def test_partitions_led_by_a_broker_that_does_not_answer_make_the_cluster_unhealthy() -> None:
    hears_none = cluster_health(ClusterFacts(has_controller=True, missing={3: 21})).findings
    found = merged([BrokerReport(1, hears_none), BrokerReport(2), BrokerReport(3, silence="no answer")])
    assert (found.level, found.reasons) == (
        Level.UNHEALTHY,
        ["21 partitions are led by broker 3, which does not respond", "broker 3 does not respond"],
    )


def test_a_broker_that_hears_no_other_broker_does_not_make_a_healthy_cluster_unhealthy() -> None:
    alone = cluster_health(ClusterFacts(has_controller=True, missing={1: 7, 3: 0})).findings
    found = merged([BrokerReport(1), BrokerReport(2, alone), BrokerReport(3)])
    assert (found.level, found.reasons) == (
        Level.DEGRADED,
        [
            "7 partitions are led by broker 1, which does not respond to broker 2",
            "broker 1 does not respond to broker 2",
            "broker 3 does not respond to broker 2",
        ],
    )


def test_a_report_lists_topics_with_their_reasons_and_is_bounded() -> None:
    topics: list[Finding] = []
    for index in range(500):
        topics += topic_health(f"topic-{index:03}", TopicFacts(offline=1)).findings
    cluster = cluster_health(ClusterFacts(has_controller=True, offline_partitions=500)).findings
    document = report(BrokerReport(1, [*cluster, *topics]), {"broker": {"id": 1}})
    assert (document["status"], document["reasons"]) == ("Unhealthy", ["500 partitions have no leader"])
    assert document["codes"] == ["offline_partitions"]
    assert document["broker"] == {"status": "Healthy", "reasons": [], "id": 1}
    assert len(document["topics"]["reasons"]) == TOPICS_MAX
    assert document["topics"]["reasons"][0] == "topic-000: 1 partition has no leader"


def test_a_document_has_the_whole_report() -> None:
    own = BrokerReport(4, [*FENCED, *FULL])
    assert report_in(4, report(own, {})) == own
