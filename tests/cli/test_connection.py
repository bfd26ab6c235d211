"""When a command gives up on a cluster."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.cli.connection import Cluster, Refused
from penstock.cli.failure import Failure


def test_either_timeout_suggests_a_command() -> None:
    cluster = Cluster("127.0.0.1:1", 0.01)
    nobody_answers: Future[Any] = Future()
    with pytest.raises(Failure, match=r"has not answered within 0.01 s: .* `penstock quorum describe`"):
        cluster.wait(nobody_answers)
    nobody_answers.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    with pytest.raises(Failure, match=r"has not answered within 0.01 s: .* `penstock quorum describe`"):
        cluster.wait(nobody_answers)
    refused: Future[Any] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
    with pytest.raises(Refused, match=r"t: .*--if-not-exists"):
        cluster.wait(refused, "t")


class Slow:
    """A client whose broker needs a second for each response."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def list_topics(self, timeout: float) -> str:
        self.waits.append(timeout)
        if timeout < 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return "metadata"

    def poll(self, timeout: float) -> None:
        """There are no errors to report."""


class Clock:
    """The time of a command."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Mute(Slow):
    """A client whose broker never responds: each attempt takes all of its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.clock = Clock()
        monkeypatch.setattr("penstock.cli.connection.time", self.clock)

    def list_topics(self, timeout: float) -> str:
        self.waits.append(timeout)
        self.clock.now_s += timeout
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_attempts_end_with_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Mute(monkeypatch)
    with pytest.raises(Failure, match=r"no broker answers at 127\.0\.0\.1:1"):
        Cluster("127.0.0.1:1", 1).metadata(client)
    assert client.waits == [0.25, 0.5, 0.25]


def test_a_patient_command_reports_within_two_seconds_that_it_tries(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = Mute(monkeypatch)
    with pytest.raises(Failure, match=r"no broker answers at 127\.0\.0\.1:1"):
        Cluster("127.0.0.1:1", 3, patient=True).metadata(client)
    assert capsys.readouterr().err == (
        "penstock: no broker answers at 127.0.0.1:1: still trying (--timeout 3)\n"
    )
    said_after = client.waits[: client.waits.index(max(client.waits))]
    assert sum(said_after) < 2


def test_a_slow_broker_gets_more_time_with_each_attempt() -> None:
    client: Any = Slow()
    assert Cluster("127.0.0.1:1", 60).metadata(client) == "metadata"
    assert client.waits == [0.25, 0.5, 1.0]
