"""The fuzzer against two brokers of ours: they agree, unless one of them is made to answer differently."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential.brokers import SETTINGS, Broker, common_versions, warm_up
from differential.generator import generate
from differential.run import run
from penstock.testing import broker

SEED = 7


def running(settings: dict[str, str]) -> Iterator[Broker]:
    with broker(config={**SETTINGS, **settings}) as started:
        host, _, port = started.bootstrap.rpartition(":")
        made = Broker("penstock", host, int(port))
        warm_up(made)
        yield made


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    yield from running({})


@pytest.fixture(scope="module")
def same() -> Iterator[Broker]:
    yield from running({})


@pytest.fixture(scope="module")
def altered() -> Iterator[Broker]:
    yield from running({"num.partitions": "3"})


def test_two_brokers_of_the_same_kind_agree(ours: Broker, same: Broker) -> None:
    report = run(ours, same, generate(SEED, 80, common_versions(ours, same)))
    assert not report.disagreements, "\n".join(report.disagreements[0].lines())
    assert report.operations > 80


def test_an_altered_answer_is_found(ours: Broker, altered: Broker) -> None:
    operations = generate(SEED, 80, common_versions(ours, altered), only=["topics"])
    (found,) = run(ours, altered, operations).disagreements
    assert found.signature == ("CreateTopics", "topics.num_partitions")
    assert any("Penstock 2, Apache Kafka 3" in line for line in found.lines())
