"""Records that other brokers append to internal topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.handlers.broker_appends import BrokerAppends
from penstock.model.errors import ErrorCode
from penstock.model.ids import AUDIT_TOPIC, TopicId
from tests.broker.requests import (
    Topic,
    batch_of,
    produce_request,
)


@pytest.mark.parametrize(
    ("is_allowed", "name", "code"),
    [
        (False, AUDIT_TOPIC, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (True, "another", ErrorCode.INVALID_REQUEST),
        (True, AUDIT_TOPIC, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_only_nodes_send_events_and_only_to_the_audit_topic(
    is_allowed: bool, name: str, code: ErrorCode
) -> None:
    topics = {name: SimpleNamespace(id=b"i" * 16, name=name) for name in (AUDIT_TOPIC, "another")}
    image: Any = SimpleNamespace(topics=topics, topics_by_id={})
    access: Any = SimpleNamespace(allows_on_cluster=lambda context, operation: is_allowed)
    appends = BrokerAppends(
        image,
        lambda topic, index: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        access,
        lambda topic: topic == AUDIT_TOPIC,
    )
    request = produce_request(Topic(name, TopicId(bytes(16))), batch_of([b"x"]), version=7)
    context: Any = None
    response = asyncio.run(appends.produce(context, request))
    assert response.responses[0].partition_responses[0].error_code == code
