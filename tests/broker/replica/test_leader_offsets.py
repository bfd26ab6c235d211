"""A follower outside of its leader's log lists the bounds of that log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.replica.leader_offsets import LogBounds, log_bounds
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.client import Peer
from penstock.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

PARTITION = cast(Partition, SimpleNamespace(topic="t", index=2))


class Leader:
    """A peer that answers ListOffsets; -2 is the earliest offset, -1 the latest."""

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.error = error
        self.requests: list[ListOffsetsRequest] = []

    async def send(self, api: Any, request: ListOffsetsRequest, timeout_s: float) -> ListOffsetsResponse:
        self.requests.append(request)
        wanted = request.topics[0].partitions[0]
        answer = ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            error_code=self.error,
            offset={-2: 5, -1: 9}[wanted.timestamp],
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


def bounds(leader: Leader) -> LogBounds:
    return asyncio.run(log_bounds(cast(Peer, leader), 7, PARTITION, 3, 1.0))


def test_start_and_end_are_listed_in_the_followers_name_and_leader_epoch() -> None:
    leader = Leader()
    assert bounds(leader) == LogBounds(5, 9)
    for request in leader.requests:
        wanted = request.topics[0].partitions[0]
        assert (request.replica_id, wanted.partition_index, wanted.current_leader_epoch) == (7, 2, 3)


def test_a_refusal_is_raised() -> None:
    with pytest.raises(ApiError) as raised:
        bounds(Leader(ErrorCode.FENCED_LEADER_EPOCH))
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH
