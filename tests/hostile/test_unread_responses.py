"""A client with many connections that reads none of its responses, large and small."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from penstock.broker.replica.partition import Partition
from penstock.net.output import HIGH_WATER
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchResponse
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from tests.broker.large_topics import topic_image
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, create_topic, fetch_request, produce, record
from tests.waiting import eventually

pytestmark = pytest.mark.slow
_PARTITIONS = 60_000
#: without a limit, all of their responses are in memory
_CONNECTIONS = 36
#: those that read their response after all; the others are closed
_READ = 8
_MEMORY = 32 << 20
#: connections with small responses, each of which has more than a mebibyte of them
_READERS = 200
_FETCHES = 45
_RECORD_BYTES = 30_000
#: One client may use half of the memory. Then the large requests that have begun get no turn, so few bytes
#: are added; responses without a limit need more than twice as many.
_BOUND = 3 * _MEMORY // 4


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    settings = {
        "queued.max.request.bytes": str(_MEMORY),
        "socket.request.max.bytes": str(_MEMORY),
        # The kernel would take the responses.
        "socket.send.buffer.bytes": str(64 << 10),
    }
    with broker(config=settings) as found:
        yield found


def _unsent(running: BrokerThread) -> int:
    return sum(each._output.unsent for each in list(running.broker.stages.listening.server.connections))


def _is_unread(running: BrokerThread, connections: int) -> bool:
    """Whether no connection but the one of the test is served any more."""
    return (
        sum(each._write_blocked for each in list(running.broker.stages.listening.server.connections))
        >= connections
    )


def test_unread_responses_of_one_client_are_bounded(running: BrokerThread) -> None:
    """Each connection had its response in memory: 36 of them 55 MB, a thousand 2 GB."""
    image = topic_image("large", _PARTITIONS)
    running.broker.stages.cluster.image.topics["large"] = image
    clients = [RawClient(running.bootstrap, timeout_s=120) for _ in range(_CONNECTIONS)]
    most = 0
    try:
        for each in clients:
            each.send(METADATA, 12, MetadataRequest(topics=None))
        turns = running.broker.stages.listening.server.turns

        def is_suspended() -> bool:
            nonlocal most
            most = max(most, _unsent(running))
            return bool(turns._suspended) or most > 2 * _BOUND

        eventually(is_suspended)
        with RawClient(running.bootstrap) as honest:
            # Its small requests go on.
            for _ in range(20):
                honest.call(API_VERSIONS, 0, ApiVersionsRequest())
                most = max(most, _unsent(running))
        for each in clients[_READ:]:
            each.close()
        with ThreadPoolExecutor(_READ) as threads:
            for response in threads.map(RawClient.receive, clients[:_READ]):
                assert isinstance(response, MetadataResponse)
                assert len(response.topics[-1].partitions) == _PARTITIONS
    finally:
        for each in clients:
            each.close()
    assert most < _BOUND, most
    eventually(lambda: not turns._suspended)


def _connected(running: BrokerThread) -> RawClient:
    """A client whose kernel takes little of what it does not read."""
    client = RawClient(running.bootstrap, timeout_s=120)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    return client


def test_small_responses_on_many_connections_are_bounded(running: BrokerThread) -> None:
    """Each connection had less than a mebibyte unsent, which did not count: 200 of them 200 MB."""
    with RawClient(running.bootstrap) as producer, ExitStack() as stack:
        topic = create_topic(producer)
        produce(producer, topic, batch_of([record(b"x" * _RECORD_BYTES)]))
        clients = [stack.enter_context(_connected(running)) for _ in range(_READERS)]
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch_request([(topic, [partition])], version=FETCH.max_version)
        for client in clients:
            for _ in range(_FETCHES):
                client.send(FETCH, FETCH.max_version, request)
        eventually(lambda: _is_unread(running, _READERS))
        assert _unsent(running) < _MEMORY
        for client in clients[::50]:
            for _ in range(_FETCHES):
                response = client.receive()
                assert isinstance(response, FetchResponse)
                assert len(response.responses[0].partitions[0].records or b"") > _RECORD_BYTES


def test_records_that_many_fetches_wait_for_are_not_copied_for_each(running: BrokerThread) -> None:
    """10 connections with 200 fetches each had 60 MB in memory once a record of 30 KB was produced."""
    waiting, fetches = 10, 200
    with RawClient(running.bootstrap) as producer, ExitStack() as stack:
        topic = create_topic(producer)
        clients = [stack.enter_context(_connected(running)) for _ in range(waiting)]
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch_request([(topic, [partition])], version=FETCH.max_version, max_wait_ms=60_000)
        for client in clients:
            for _ in range(fetches):
                client.send(FETCH, FETCH.max_version, request)
        replica = running.broker.stages.storage.partitions.find(topic.name, 0)
        assert isinstance(replica, Partition)
        eventually(lambda: len(replica.readers) >= waiting * fetches)
        produce(producer, topic, batch_of([record(b"x" * _RECORD_BYTES)]))
        assert _unsent(running) < 2 * waiting * HIGH_WATER
        for client in clients:
            for _ in range(fetches):
                response = client.receive()
                assert isinstance(response, FetchResponse)
                assert len(response.responses[0].partitions[0].records or b"") > _RECORD_BYTES
