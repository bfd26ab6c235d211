"""Health levels and their reasons."""

from __future__ import annotations

import pytest

from penstock.observability.health import (
    BrokerFacts,
    ClientFacts,
    ClusterFacts,
    Health,
    Level,
    TopicFacts,
    broker_health,
    client_health,
    cluster_health,
    readiness,
    report,
    topic_health,
)

HEALTHY = Health(Level.HEALTHY)


@pytest.mark.parametrize(
    ("facts", "level", "reason"),
    [
        (BrokerFacts(directories_offline=["/a"]), Level.UNHEALTHY, "data directory /a is offline"),
        (BrokerFacts(directories_full=["/a"]), Level.UNHEALTHY, "data directory /a is full"),
        (BrokerFacts(registered=False), Level.UNHEALTHY, "the broker is not registered"),
        (BrokerFacts(fenced=True), Level.UNHEALTHY, "the broker is fenced"),
        (BrokerFacts(stopping=True), Level.DEGRADED, "the broker is shutting down"),
        (BrokerFacts(metadata_lag=5000), Level.DEGRADED, "5000 metadata records are not applied"),
        (
            BrokerFacts(free_space={"/a": 0.19}),
            Level.DEGRADED,
            "the volume of /a has 19% free, less than 20%",
        ),
        (BrokerFacts(loop_lag_s=1.5), Level.DEGRADED, "the event loop was blocked for 1.5 s"),
        (BrokerFacts(damaged_ranges=2), Level.DEGRADED, "2 damaged ranges are not repaired"),
    ],
)
def test_each_problem_of_a_broker_has_its_level_and_reason(
    facts: BrokerFacts, level: Level, reason: str
) -> None:
    assert broker_health(facts) == Health(level, (reason,))


def test_a_broker_without_problems_is_healthy_and_ready() -> None:
    facts = BrokerFacts(free_space={"/a": 0.2}, metadata_lag=3)
    assert broker_health(facts) == HEALTHY
    assert readiness(facts) == []


def test_a_node_without_the_broker_role_need_not_register() -> None:
    facts = BrokerFacts(is_broker=False, registered=False, fenced=True)
    assert broker_health(facts) == HEALTHY
    assert readiness(facts) == []


def test_a_full_disk_is_not_a_reason_to_take_a_broker_out_of_service() -> None:
    """Reads go on. The level says that it is full."""
    assert readiness(BrokerFacts(directories_full=["/a"])) == []
    assert readiness(BrokerFacts(directories_offline=["/a"], fenced=True, stopping=True)) == [
        "data directory /a is offline",
        "the broker is fenced",
        "the broker is shutting down",
    ]


def test_the_worst_reason_comes_first_and_decides() -> None:
    facts = BrokerFacts(stopping=True, fenced=True)
    assert broker_health(facts).level is Level.UNHEALTHY
    assert broker_health(facts).reasons == ("the broker is fenced", "the broker is shutting down")


def test_a_cluster() -> None:
    assert cluster_health(ClusterFacts(has_controller=True)) == HEALTHY
    assert cluster_health(ClusterFacts(has_controller=False)).level is Level.UNKNOWN
    assert cluster_health(ClusterFacts(has_controller=True, fenced=[2])).reasons == ("broker 2 is fenced",)
    facts = ClusterFacts(has_controller=False, offline_partitions=1, under_replicated=4, stopping=[3])
    assert cluster_health(facts) == Health(
        Level.UNHEALTHY,
        (
            "1 partitions have no leader",
            "there is no active controller",
            "broker 3 is shutting down",
            "4 partitions lack in-sync replicas",
        ),
    )


def test_topics() -> None:
    assert topic_health(TopicFacts()) == HEALTHY
    assert topic_health(TopicFacts(under_replicated=1)).level is Level.DEGRADED
    assert topic_health(TopicFacts(under_min_isr=1)).level is Level.UNHEALTHY
    assert topic_health(TopicFacts(offline=1)).level is Level.UNHEALTHY


def test_clients() -> None:
    assert client_health(ClientFacts()) == HEALTHY
    assert client_health(ClientFacts(serving=False)).level is Level.UNKNOWN
    refused = client_health(ClientFacts(opened=5, refused=2))
    assert refused == Health(Level.DEGRADED, ("2 connections were refused in the last minute",))
    assert client_health(ClientFacts(opened=100, failed=1)) == HEALTHY
    assert client_health(ClientFacts(opened=100, failed=2)).reasons == (
        "2.0% of the connections of the last minute have failed",
    )
    # One failure of three connections says little.
    assert client_health(ClientFacts(opened=3, failed=1)) == HEALTHY


def test_a_report_lists_unhealthy_topics_with_their_reasons_and_is_bounded() -> None:
    bad = topic_health(TopicFacts(offline=1))
    topics = {f"topic-{index:03}": bad for index in range(500)}
    document = report(HEALTHY, HEALTHY, topics, HEALTHY, {"broker": {"id": 1}})
    assert document["status"] == "Unhealthy"
    assert document["broker"] == {"status": "Healthy", "reasons": [], "id": 1}
    assert len(document["topics"]["reasons"]) == 100
    assert document["topics"]["reasons"][0] == "topic-000: 1 partitions have no leader"


def test_a_broker_that_does_not_respond_is_named_before_it_is_fenced() -> None:
    found = cluster_health(ClusterFacts(has_controller=True, missing=[3]))
    assert found == Health(Level.DEGRADED, ("broker 3 does not respond",))
