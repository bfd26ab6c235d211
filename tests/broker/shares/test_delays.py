"""Retry backoff of a group, and the delivery delay of a topic, on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import QueueCluster
from tests.broker.raw import RawClient
from tests.broker.requests import Topic
from tests.broker.share_groups import (
    ACCEPT,
    RELEASE,
    TOPIC_RESOURCE,
    Member,
    append,
    set_configs,
    set_group_configs,
)


@pytest.fixture
def client(penstock_queues: QueueCluster) -> Iterator[RawClient]:
    with RawClient(penstock_queues.bootstrap) as connected:
        yield connected


def test_released_records_come_back_after_the_backoff(
    penstock_queues: QueueCluster, client: RawClient, topic: Topic, group: str
) -> None:
    set_group_configs(client, group, penstock_share_retry_backoff_ms="3000")
    append(client, topic, b"a", b"b")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 1, 1)]
    assert member.outcome((0, 0, [RELEASE]), (1, 1, [ACCEPT])) == "NONE"
    assert member.fetch(max_wait_ms=1)[1] is None
    penstock_queues.advance(3.1)
    assert member.take() == [(0, 0, 2)]
    assert member.outcome((0, 0, [RELEASE])) == "NONE"
    penstock_queues.advance(3.1)
    assert member.fetch(max_wait_ms=1)[1] is None, "twice as long"
    penstock_queues.advance(3.0)
    assert member.take() == [(0, 0, 3)]


def test_share_groups_receive_batches_of_an_age(
    penstock_queues: QueueCluster, client: RawClient, topic: Topic, group: str
) -> None:
    member = Member(client, group, topic).join()
    set_configs(client, TOPIC_RESOURCE, topic.name, penstock_delivery_delay_ms="6000")
    member.fetch(max_wait_ms=1)
    append(client, topic, b"a")
    penstock_queues.advance(4)
    assert member.fetch(max_wait_ms=1)[1] is None
    penstock_queues.advance(3)
    assert member.take(max_wait_ms=20_000) == [(0, 0, 1)]
