"""One broker in memory for the tests of the data source, and topics on it that no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.connection import close_clusters
from penstock.testing import BrokerThread, broker
from tests.spark.topics import Topics

_names = count()


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerThread]:
    with broker(config={"log.cleaner.backoff.ms": "50", "penstock.log.level": "warning"}) as running:
        yield running
        close_clusters()


@pytest.fixture(scope="session")
def topics(running: BrokerThread) -> Topics:
    return Topics(running.bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of three partitions."""
    name = f"spark-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(timeout=10)
    return name
