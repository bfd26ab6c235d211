"""When a command gives up on a cluster."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.cli.connection import Cluster, Refused
from penstock.cli.failure import Failure


@pytest.mark.parametrize("listens", [True, False])
def test_all_brokers_are_down_when_nobody_listens_where_to_start(listens: bool) -> None:
    """librdkafka says so, too, while those are down that it has tried of a cluster that has others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        cluster = Cluster(f"127.0.0.1:1, 127.0.0.1:{port}", 10)
        cluster._note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert cluster._unreachable is not listens


def test_whoever_gives_up_first_says_what_may_be_wrong() -> None:
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


def test_a_slow_broker_gets_more_time_with_each_attempt() -> None:
    client: Any = Slow()
    assert Cluster("127.0.0.1:1", 60).metadata(client) == "metadata"
    assert client.waits == [0.25, 0.5, 1.0]
