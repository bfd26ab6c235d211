"""The load generator against a real broker."""

from __future__ import annotations

from threading import Event

from penstock.cli.benching.load import Load, run_load
from penstock.cli.connection import Cluster
from tests.cli.running import Command


def load(topic: str, rate: float, consumers: int, duration_s: float = 0.5) -> Load:
    return Load(topic, 3, rate, 50, keys=5, duration_s=duration_s, consumers=consumers, settle_s=60)


def test_each_message_is_received_once_by_one_of_the_consumers(broker: str, penstock: Command) -> None:
    assert penstock("topic", "create", "loaded", "--partitions", "3").returncode == 0
    assert penstock("produce", "loaded", input="before\n").returncode == 0  # is not counted
    outcome = run_load(Cluster(broker, 60), load("loaded", 400, 2), {}, Event(), lambda _: None)
    assert 0 < outcome.sent <= 400 * outcome.seconds + 1
    assert (
        outcome.sent == outcome.acknowledged == outcome.received == outcome.acks.count == outcome.ends.count
    )
    assert outcome.failed == 0 and outcome.error is None
    assert 0 < outcome.ends.percentile_us(50) <= outcome.ends.max_us


def test_a_stopped_load_ends_early(broker: str, penstock: Command) -> None:
    assert penstock("topic", "create", "stopped", "--partitions", "3").returncode == 0
    stop = Event()
    outcome = run_load(
        Cluster(broker, 60), load("stopped", 0, 0, duration_s=600), {}, stop, lambda _: stop.set()
    )
    assert outcome.sent == outcome.acknowledged > 0
    assert (outcome.received, outcome.seconds < 300) == (0, True)


def test_failures_are_counted(broker: str, penstock: Command) -> None:
    assert (
        penstock("topic", "create", "small", "--partitions", "3", "-c", "max.message.bytes=60").returncode
        == 0
    )
    outcome = run_load(Cluster(broker, 60), load("small", 50, 1), {}, Event(), lambda _: None)
    assert outcome.failed == outcome.sent > 0
    assert outcome.error is not None and "too large" in outcome.error.lower()
