"""Transactions that librdkafka writes and an external coordinator decides, with a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from penstock.model.addresses import parse_bootstrap
from penstock.reading.connection import Cluster, Endpoint
from penstock.testing import broker
from penstock.twophase.outcomes import NotSupported, OtherOutcome, PreparedTransaction
from penstock.twophase.prepared import PreparedTransactions
from tests.broker.requests import new_name, until
from tests.interop.isolation import read
from tests.twophase.writing import write


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker(config={"transaction.two.phase.commit.enable": "true"}) as running:
        yield running.bootstrap


@pytest.fixture
def coordinator(bootstrap: str) -> Iterator[PreparedTransactions]:
    cluster = Cluster(Endpoint(tuple(parse_bootstrap(bootstrap))))
    yield PreparedTransactions(cluster)
    cluster.close()


def test_a_transaction_of_librdkafka_is_decided_from_another_connection(
    bootstrap: str, coordinator: PreparedTransactions
) -> None:
    topic, name = new_name("t"), new_name("x")
    producer = write(bootstrap, f"{name}-1", topic, "a", "b")
    first = coordinator.prepare(f"{name}-1")
    assert first is not None
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    del producer  # the end of its process ends no transaction
    second = write(bootstrap, f"{name}-2", topic, "not this")
    other = coordinator.prepare(f"{name}-2")
    assert other is not None
    del second
    assert coordinator.open_ids(name) == [f"{name}-1", f"{name}-2"]
    coordinator.end(PreparedTransaction.parse(str(first)), committed=True)
    coordinator.end(first, committed=True)
    with pytest.raises(OtherOutcome, match="cannot be aborted"):
        coordinator.end(first, committed=False)
    coordinator.end(other, committed=False)
    assert coordinator.open_ids(name) == []
    until(lambda: read(bootstrap, topic) == [b"a", b"b"])


def test_a_second_preparation_fences_the_first(bootstrap: str, coordinator: PreparedTransactions) -> None:
    topic, name = new_name("t"), new_name("x")
    producer = write(bootstrap, name, topic, "a")
    first, second = coordinator.prepare(name), coordinator.prepare(name)
    assert first is not None and second is not None
    with pytest.raises(OtherOutcome, match="PRODUCER_FENCED"):
        coordinator.end(first, committed=True)
    coordinator.end(second, committed=True)
    until(lambda: read(bootstrap, topic) == [b"a"])
    del producer


def test_an_orphan_is_aborted_by_its_id(bootstrap: str, coordinator: PreparedTransactions) -> None:
    topic, name = new_name("t"), new_name("x")
    producer = write(bootstrap, name, topic, "a")
    prepared = coordinator.prepare(name)
    assert prepared is not None
    coordinator.abort(name)
    with pytest.raises(OtherOutcome):
        coordinator.end(prepared, committed=True)
    assert coordinator.prepare(name) is None
    assert read(bootstrap, topic) == []
    del producer


def test_a_cluster_without_it_is_recognised_before_messages_are_written() -> None:
    with broker() as running:
        cluster = Cluster(Endpoint(tuple(parse_bootstrap(running.bootstrap))))
        with pytest.raises(NotSupported, match=r"transaction\.two\.phase\.commit\.enable=true"):
            PreparedTransactions(cluster).check("x")
        cluster.close()
