"""The judgement of health reports and counters."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from chaos.watching import HealthWatch, Watched, fallen_counters, is_false, leaderless
from penstock.testing import broker
from tests.broker.monitoring.scrapes import MONITORED
from tests.waiting import eventually


def health(cluster: str, topics: str) -> dict[str, Any]:
    return {"cluster": {"status": cluster}, "topics": {"status": topics}}


LACKING = frozenset({("t", 0, 5)})


def test_partitions_without_a_leader_must_show_in_the_report() -> None:
    assert is_false(LACKING, health("Healthy", "Healthy"), LACKING | {("t", 1, 2)})
    assert not is_false(LACKING, health("Unhealthy", "Healthy"), LACKING)
    assert not is_false(LACKING, health("Healthy", "Unhealthy"), LACKING)
    # A leader was elected meanwhile, and lost again; or the broker did not respond.
    assert not is_false(LACKING, health("Healthy", "Healthy"), frozenset({("t", 0, 7)}))
    assert not is_false(frozenset(), health("Healthy", "Healthy"), LACKING)


def page(started: float, count: int) -> str:
    return (
        f"penstock_start_time_seconds {started}\n"
        f'penstock_requests_total{{api="Fetch",listener="client"}} {count}\npenstock_leaders 5\n'
    )


def test_a_counter_may_fall_with_its_process_only() -> None:
    assert fallen_counters(page(1, 5), page(1, 4)) == [
        'penstock_requests_total{api="Fetch",listener="client"} fell from 5 to 4'
    ]
    assert fallen_counters(page(1, 5), page(2, 0)) == []
    assert fallen_counters(page(1, 5), page(1, 6)) == fallen_counters("", page(1, 6)) == []


def test_a_healthy_broker_causes_no_complaint() -> None:
    with broker(config=MONITORED) as running:
        assert running.broker.serving.monitor is not None
        clients = ("127.0.0.1", running.broker.stages.listening.listeners[0].port)
        watched = Watched(clients, ("127.0.0.1", running.broker.serving.monitor.port))
        assert leaderless(watched) == frozenset()
        watch = HealthWatch({1: watched})
        watch.start()
        eventually(lambda: watch.reports > 0)
        assert watch.finish(60, "deleted-") == []
    assert leaderless(watched) == frozenset()


def test_samples_of_deleted_topics_are_a_complaint() -> None:
    with broker(config=MONITORED) as running:
        assert running.broker.serving.monitor is not None
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("passing-1", b"x")
        assert producer.flush(60) == 0
        clients = ("127.0.0.1", running.broker.stages.listening.listeners[0].port)
        watch = HealthWatch({1: Watched(clients, ("127.0.0.1", running.broker.serving.monitor.port))})
        watch.start()
        assert watch.finish(0.0, "other-") == []
        (complaint,) = HealthWatch.finish(watch, 0.0, "passing-")
        assert "samples of topics that are deleted" in complaint
