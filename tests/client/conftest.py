"""One broker in memory for the tests of the clients; its groups do not take their time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.testing import broker

_names = count()
QUICK_GROUPS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with broker(config=QUICK_GROUPS) as running:
        yield running.bootstrap


@pytest.fixture
def name() -> str:
    """A name for a topic, or a group, that no other test uses."""
    return f"name-{next(_names)}"
