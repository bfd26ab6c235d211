"""The large requests and responses of one client that are in memory at once, over all of its connections."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.broker.handlers.metadata import MetadataHandlers
from penstock.broker.request.large_requests import DECODED_BYTES_MAX, LargeRequests
from penstock.net.turns import COMPUTED_AT_ONCE
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.large_topics import topic_image
from tests.broker.raw import RawClient


@pytest.fixture
def running() -> Iterator[BrokerThread]:
    with broker(config={"auto.create.topics.enable": "false"}) as found:
        yield found


def test_large_requests_on_many_connections_are_not_decoded_at_once(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection had its request in memory, which takes up to a hundred times its bytes."""
    connections, names = 12, 15_000
    handled, decoded, most = LargeRequests._handled, 0, 0

    async def counted(own: LargeRequests, route: Any, context: Any, frame: Any, *others: Any) -> Any:
        nonlocal decoded, most
        decoded += len(frame)
        most = max(most, decoded)
        try:
            return await handled(own, route, context, frame, *others)
        finally:
            decoded -= len(frame)

    monkeypatch.setattr(LargeRequests, "_handled", counted)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"none-{i:0>20}") for i in range(names)])
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(running.bootstrap, timeout_s=120)) for _ in range(connections)
        ]
        for client in clients:
            client.send(METADATA, 12, request)
        for client in clients:
            response = client.receive()
            assert isinstance(response, MetadataResponse)
            assert len(response.topics) == names
    assert DECODED_BYTES_MAX // 2 < most <= DECODED_BYTES_MAX, most


def test_large_responses_on_many_connections_are_not_built_at_once(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 30 bytes for all topics: each of 36 connections had 60,000 objects, 950 MB in all."""
    connections, partitions = 30, 5_000
    running.broker.stages.cluster.image.topics["large"] = topic_image("large", partitions)
    metadata, encoded = MetadataHandlers._metadata, LargeRequests._encoded
    built = most = 0

    def counted(handlers: MetadataHandlers, *others: Any) -> Generator[None, None, MetadataResponse]:
        nonlocal built, most
        response = yield from metadata(handlers, *others)
        built += 1
        most = max(most, built)
        return response

    async def released(requests: LargeRequests, *others: Any) -> Any:
        nonlocal built
        try:
            return await encoded(requests, *others)
        finally:
            built -= 1

    monkeypatch.setattr(MetadataHandlers, "_metadata", counted)
    monkeypatch.setattr(LargeRequests, "_encoded", released)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(running.bootstrap, timeout_s=120)) for _ in range(connections)
        ]
        for client in clients:
            client.send(METADATA, 12, MetadataRequest(topics=None))
        for client in clients:
            response = client.receive()
            assert isinstance(response, MetadataResponse)
            assert len(response.topics[-1].partitions) == partitions
    assert 0 < most <= COMPUTED_AT_ONCE, most
