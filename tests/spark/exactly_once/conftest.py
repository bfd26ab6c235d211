"""One broker in memory with two-phase commit, and topics that no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.reading.connection import close_clusters
from penstock.spark.exactly_once.journal import forget_positions
from penstock.testing import BrokerThread, broker
from tests.spark.topics import Topics

_names = count()


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerThread]:
    config = {"transaction.two.phase.commit.enable": "true", "penstock.log.level": "warning"}
    with broker(config=config) as running:
        yield running
        close_clusters()
        forget_positions()


@pytest.fixture(scope="session")
def topics(running: BrokerThread) -> Topics:
    return Topics(running.bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of three partitions."""
    name = f"sink-{next(_names)}"
    topics.create(name, 3)
    return name


@pytest.fixture
def bootstrap(running: BrokerThread) -> str:
    return running.bootstrap
