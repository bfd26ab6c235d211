"""Retry backoff of a group, and the delivery delay of a topic, on the wire."""

from __future__ import annotations

import time

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


def test_released_records_come_back_after_the_backoff(client: RawClient, topic: Topic, group: str) -> None:
    set_group_configs(client, group, penstock_share_retry_backoff_ms="300")
    append(client, topic, b"a", b"b")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 1, 1)]
    began = time.monotonic()
    assert member.outcome((0, 0, [RELEASE]), (1, 1, [ACCEPT])) == "NONE"
    assert member.take(max_wait_ms=20_000) == [(0, 0, 2)]
    assert time.monotonic() - began >= 0.29
    began = time.monotonic()
    assert member.outcome((0, 0, [RELEASE])) == "NONE"
    assert member.take(max_wait_ms=20_000) == [(0, 0, 3)]
    assert time.monotonic() - began >= 0.59, "twice as long"


def test_share_groups_receive_batches_of_an_age(client: RawClient, topic: Topic, group: str) -> None:
    member = Member(client, group, topic).join()
    set_configs(client, TOPIC_RESOURCE, topic.name, penstock_delivery_delay_ms="600")
    with client.another() as producer:
        append(producer, topic, b"a")
        began = time.monotonic()
        assert member.take(max_wait_ms=20_000) == [(0, 0, 1)]
    assert time.monotonic() - began >= 0.55
