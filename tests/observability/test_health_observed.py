"""Reports as a client gets them, also from brokers that report no health."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.observability.health import ClusterFacts, Level, TopicFacts
from penstock.observability.health_merge import merged
from penstock.observability.health_observed import Silence, observed_reports
from penstock.wire.apis.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult

WELL = ClusterFacts(has_controller=True)


def test_reports_of_a_broker_count_more_than_observations_of_the_client() -> None:
    own = DescribeLogDirsResponse(reports_health=True)
    facts = ClusterFacts(has_controller=True, fenced=[2])
    assert merged(observed_reports({1: own}, facts, {"t": TopicFacts(offline=1)})).level is Level.HEALTHY


def test_other_brokers_are_judged_by_the_same_definition() -> None:
    low = DescribeLogDirsResult(log_dir="/a", total_bytes=100, usable_bytes=5)
    gone = DescribeLogDirsResult(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    answers: dict[int, DescribeLogDirsResponse | Silence] = {
        1: DescribeLogDirsResponse(results=[low, gone]),
        2: Silence("no answer"),
    }
    facts = ClusterFacts(has_controller=True, offline_partitions=1)
    found = merged(observed_reports(answers, facts, {"t": TopicFacts(offline=1)}))
    assert found.level is Level.UNHEALTHY
    assert found.reasons == [
        "1 partition has no leader",
        "broker 1: data directory /b is offline",
        "broker 1: the volume of /a has 5% free, less than 20%",
        "broker 2 does not respond: no answer",
    ]
    assert found.topics["t"].reasons == ("t: 1 partition has no leader",)


def test_reserved_bytes_of_a_volume_are_neither_used_nor_free() -> None:
    """As in `df`: of 100 bytes 40 are used, 12 can be written, and 48 are kept for others."""
    volume = DescribeLogDirsResult(log_dir="/a", total_bytes=100, usable_bytes=12, reserved_bytes=48)
    answers: dict[int, DescribeLogDirsResponse | Silence] = {1: DescribeLogDirsResponse(results=[volume])}
    assert merged(observed_reports(answers, WELL, {})).level is Level.HEALTHY
    volume.reserved_bytes = 30
    (reason,) = merged(observed_reports(answers, WELL, {})).reasons
    assert reason == "broker 1: the volume of /a has 17% free, less than 20%"


def test_health_that_a_user_may_not_see_is_unknown() -> None:
    answer = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found = merged(observed_reports({1: answer}, WELL, {}))
    assert found.level is Level.UNKNOWN
    assert found.reasons == [
        "broker 1: its health is not shown to this user, who may not describe the cluster"
    ]


def test_without_any_answer_the_cluster_as_seen_before_counts() -> None:
    facts = ClusterFacts(has_controller=False)
    found = merged(observed_reports({1: Silence("connection refused")}, facts, {}))
    assert found.level is Level.UNHEALTHY
    assert "there is no active controller" in found.reasons
