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
    counted,
    free_share_min,
    public_reasons,
    readiness,
    topic_health,
)

HEALTHY = Health(Level.HEALTHY)


def seen(health: Health) -> tuple[Level, tuple[str, ...]]:
    return health.level, health.reasons


def ready(facts: BrokerFacts) -> list[str]:
    return readiness(broker_health(facts))


@pytest.mark.parametrize(
    ("facts", "level", "reason"),
    [
        (BrokerFacts(directories_offline=["/a"]), Level.UNHEALTHY, "data directory /a is offline"),
        (
            BrokerFacts(clock_doubt="it has jumped"),
            Level.DEGRADED,
            "nothing is deleted by time: it has jumped",
        ),
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
    assert seen(broker_health(facts)) == (level, (reason,))


def test_a_volume_has_the_limit_of_its_broker() -> None:
    space = {"/a": 0.1, "/b": 0.094, "/c": 0.004}
    facts = BrokerFacts(free_space=space, free_space_min={"/a": 0.05, "/b": 0.1, "/c": 0.005})
    assert broker_health(facts).reasons == (
        "the volume of /b has 9.4% free, less than 10%",
        "the volume of /c has 0.4% free, less than 0.5%",
    )
    assert public_reasons(broker_health(facts).findings) == [
        (Level.DEGRADED, "2 volumes have less than 10% free")
    ]
    none = BrokerFacts(free_space=space, free_space_min=dict.fromkeys(space, 0.0))
    assert broker_health(none) == HEALTHY


def test_the_smaller_of_share_and_bytes_is_the_limit_of_a_volume() -> None:
    """The limit is that of the smaller of both configs."""
    assert free_share_min(1000, 0.2, 10**6) == 0.2
    assert free_share_min(1000, 0.2, 50) == 0.05
    assert free_share_min(1000, 0.2, 0) == 0 == free_share_min(1000, 0.0, 10**6)


def test_a_broker_without_problems_is_healthy_and_ready() -> None:
    facts = BrokerFacts(free_space={"/a": 0.2}, metadata_lag=3)
    assert broker_health(facts) == HEALTHY
    assert ready(facts) == []


def test_a_node_without_the_broker_role_need_not_register() -> None:
    facts = BrokerFacts(is_broker=False, registered=False, fenced=True)
    assert broker_health(facts) == HEALTHY
    assert ready(facts) == []


def test_a_full_disk_is_not_a_reason_to_take_a_broker_out_of_service() -> None:
    """Reads go on. The level says that it is full."""
    assert ready(BrokerFacts(directories_full=["/a"])) == []
    assert ready(BrokerFacts(directories_offline=["/a"], fenced=True, stopping=True)) == [
        "1 data directory is offline",
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
    assert seen(cluster_health(facts)) == (
        Level.UNHEALTHY,
        (
            "1 partition has no leader",
            "there is no active controller",
            "4 partitions lack in-sync replicas",
            "broker 3 is shutting down",
        ),
    )
    assert cluster_health(ClusterFacts(has_controller=True, under_min_isr=1)).level is Level.UNHEALTHY


def test_topics() -> None:
    assert topic_health("t", TopicFacts()) == HEALTHY
    assert topic_health("t", TopicFacts(under_replicated=1)).level is Level.DEGRADED
    assert topic_health("t", TopicFacts(under_min_isr=1)).level is Level.UNHEALTHY
    assert topic_health("t", TopicFacts(offline=1)).level is Level.UNHEALTHY


def test_clients() -> None:
    assert client_health(ClientFacts()) == HEALTHY
    assert client_health(ClientFacts(serving=False)).level is Level.UNKNOWN
    refused = client_health(ClientFacts(opened=5, refused=2))
    assert seen(refused) == (Level.DEGRADED, ("2 connections were refused in the last minute",))
    assert client_health(ClientFacts(opened=100, failed=1)) == HEALTHY
    assert client_health(ClientFacts(opened=100, failed=2)).reasons == (
        "2.0% of the connections of the last minute have failed",
    )
    # One failure of three connections says little.
    assert client_health(ClientFacts(opened=3, failed=1)) == HEALTHY


def test_reasons_for_probes_name_no_path() -> None:
    facts = BrokerFacts(directories_full=["/a", "/b"], free_space={"/c": 0.1}, metadata_diverged="at 7")
    assert public_reasons(broker_health(facts).findings) == [
        (Level.UNHEALTHY, "2 data directories are full"),
        (Level.DEGRADED, "the metadata differs from the other brokers': at 7"),
        (Level.DEGRADED, "1 volume has less than 20% free"),
    ]


def test_numbers() -> None:
    assert [counted(n, "range is", "ranges are") for n in (1, 2)] == ["1 range is", "2 ranges are"]


def test_a_broker_that_does_not_respond_is_named_before_it_is_fenced() -> None:
    found = cluster_health(ClusterFacts(has_controller=True, missing={3: 0}))
    assert seen(found) == (Level.DEGRADED, ("broker 3 does not respond",))


def test_partitions_of_a_leader_that_does_not_respond_are_not_available() -> None:
    found = cluster_health(ClusterFacts(has_controller=True, missing={2: 1, 3: 21}))
    assert seen(found) == (
        Level.UNHEALTHY,
        (
            "1 partition is led by broker 2, which does not respond",
            "21 partitions are led by broker 3, which does not respond",
            "broker 2 does not respond",
            "broker 3 does not respond",
        ),
    )
