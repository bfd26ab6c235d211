"""One broker in memory for the tests that need nothing special, and a fresh connection for each.

With `PENSTOCK_TEST_AGAINST=host:port` the tests that use these fixtures alone run against the broker there:
Apache Kafka, to see whether we expect what it does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import broker
from tests.broker.raw import RawClient
from tests.broker.requests import AGAINST, Topic, create_topic

#: for what we do otherwise than Apache Kafka, on purpose
penstock_only = pytest.mark.skipif(AGAINST is not None, reason="Penstock differs from Apache Kafka here")


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    if AGAINST:
        yield AGAINST
        return
    with broker() as running:
        yield running.bootstrap


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    with RawClient(address) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client)
