"""One broker for all tests of share partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.brokers import BrokerThread, broker
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, new_name
from tests.broker.share_groups import set_group_configs


@pytest.fixture(scope="package")
def running() -> Iterator[BrokerThread]:
    settings = {
        "group.share.min.record.lock.duration.ms": 1000,
        "group.share.record.lock.duration.ms": 15000,
        "penstock.delete.after.consumption.interval.ms": 20,
        "penstock.delete.finished.delay.ms": 0,
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    with broker(config=settings) as started:
        yield started


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client)


@pytest.fixture
def group(client: RawClient) -> str:
    name = new_name("group")
    set_group_configs(client, name, share_auto_offset_reset="earliest")
    return name
