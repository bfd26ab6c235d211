"""Simulated clients: what they make of the answers that brokers give them."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.model.ids import TopicPartition
from penstock.records.record import Record, build_batch
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.workload import read_all
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EVENTS = TopicPartition("events", 0)


class _OneLog:
    """Answers as the leader of one log; each fetch gets the next of `contents`, and then nothing."""

    def __init__(self, *contents: bytes) -> None:
        self.topic_ids = {_EVENTS.topic: b"t" * 16}
        self.retries = 0
        self._contents = list(contents)

    async def send_to_leader(self, partition: TopicPartition, api: object, request: object) -> object:
        if isinstance(request, FetchRequest):
            content = self._contents.pop(0) if self._contents else b""
            found = PartitionData(partition_index=0, records=memoryview(content))
            return FetchResponse(responses=[FetchableTopicResponse(partitions=[found])])
        begin = ListOffsetsPartitionResponse(partition_index=0, offset=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[begin])])

    async def backoff(self) -> None:
        self.retries += 1


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(8, id="length"),
        pytest.param(16, id="magic"),
        pytest.param(17, id="checksum"),
        pytest.param(61, id="records"),
    ],
)
def test_a_client_fetches_a_damaged_batch_again(position: int) -> None:
    """A leader sends bytes unread: a bit that has flipped on its disk is for the client to notice."""
    first = build_batch([Record(0, 0, None, b"a")])
    second = build_batch([Record(1, 0, None, b"b")], base_offset=1)
    damaged = bytearray(first + second)
    damaged[len(first) + position] ^= 0x80
    log = _OneLog(bytes(damaged), first + second)
    assert asyncio.run(read_all(cast(Client, log), _EVENTS)) == [(0, b"a"), (1, b"b")]
    assert log.retries == 1
