"""One broker in memory for the tests of frames, and a topic of four partitions that none of them changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from penstock.testing import BrokerThread, broker
from tests.spark.topics import Topics

#: the time of the first message of `orders`; each message is a second after the one before
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MESSAGES = 40
PARTITIONS = 4


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerThread]:
    with broker(config={"log.retention.ms": "-1", "penstock.log.level": "warning"}) as running:
        yield running


@pytest.fixture(scope="session")
def topics(running: BrokerThread) -> Topics:
    return Topics(running.bootstrap)


@pytest.fixture(scope="session")
def orders(topics: Topics) -> str:
    """Message N has the key N % 3, partition N % 4, and the Nth second after noon."""
    topics.create("orders", PARTITIONS)
    start_ms = int(NOON.timestamp() * 1000)
    for number in range(MESSAGES):
        topics.fill(
            "orders",
            [b'{"number": %d}' % number],
            number % PARTITIONS,
            key=b"k%d" % (number % 3),
            timestamp=start_ms + number * 1000,
        )
    return "orders"
