"""The broker that only echoes: a reader hears of what was sent, in as little time as there is."""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from bench.load import echo
from lab.server import HOST, Server
from penstock.records.batch import read_header
from penstock.records.record import Record, build_batch
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages import decode_response, encode_request

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

TOPIC = "echoed"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("echo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_LAB", str(folder))
        server = echo(folder)
    server.start()
    yield server
    server.stop()


class Client:
    """A connection that speaks one version of each API."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((HOST, server.port), TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def send(self, api: Api[Any, Any], version: int, request: Any) -> None:
        self._socket.sendall(b"".join(map(bytes, encode_request(api, version, 7, "me", request))))  # type: ignore[arg-type]

    def answer(self, api: Api[Any, Any], version: int) -> Any:
        (size,) = struct.unpack(">i", self._stream.read(4))
        frame = self._stream.read(size)
        assert frame[:4] == b"\0\0\0\7", "the correlation id"
        return decode_response(api, version, memoryview(frame))

    def call(self, api: Api[Any, Any], version: int, request: Any) -> Any:
        self.send(api, version, request)
        return self.answer(api, version)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@pytest.fixture
def clients(server: Server) -> Iterator[tuple[Client, Client]]:
    both = Client(server), Client(server)
    yield both
    for client in both:
        client.close()


def produce(partition: int, records: int) -> ProduceRequest:
    batch = memoryview(build_batch([Record(delta, 0, None, b"x" * 100, ()) for delta in range(records)]))
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def fetch(offsets: dict[int, int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=TIMEOUT_S * 1000, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)]
    )


def test_a_client_finds_its_way(clients: tuple[Client, Client], server: Server) -> None:
    client, _ = clients
    refused = client.call(API_VERSIONS, 0, ApiVersionsRequest())
    assert {(api.api_key, api.max_version) for api in refused.api_keys} >= {(PRODUCE.key, 3), (FETCH.key, 4)}
    found = client.call(METADATA, 1, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    assert [(broker.host, broker.port) for broker in found.brokers] == [(HOST, server.port)]
    assert [partition.leader_id for partition in found.topics[0].partitions] == [found.brokers[0].node_id] * 4
    wanted = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=2, timestamp=-2)])
    (topic,) = client.call(LIST_OFFSETS, 1, ListOffsetsRequest(topics=[wanted])).topics
    assert [(found.partition_index, found.offset) for found in topic.partitions] == [(2, 0)]


def test_a_waiting_reader_gets_new_records(clients: tuple[Client, Client]) -> None:
    reader, writer = clients
    reader.send(FETCH, 4, fetch({3: 0, 1: 0}))
    (acknowledged,) = writer.call(PRODUCE, 3, produce(1, records=3)).responses
    assert acknowledged.partition_responses[0].base_offset == 0
    (topic,) = reader.answer(FETCH, 4).responses
    quiet, news = topic.partitions
    assert (quiet.partition_index, quiet.high_watermark, len(quiet.records)) == (3, 0, 0)
    assert (news.partition_index, news.high_watermark) == (1, 3)
    assert read_header(news.records).record_count == 3

    writer.call(PRODUCE, 3, produce(1, records=2))
    (topic,) = reader.call(FETCH, 4, fetch({1: 3})).responses
    assert read_header(topic.partitions[0].records).base_offset == 3
    (topic,) = reader.call(FETCH, 4, fetch({1: 0})).responses
    assert len(topic.partitions[0].records) > len(news.records), "from the beginning, all of it"
