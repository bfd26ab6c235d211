"""Error codes in responses, at the top and in lists."""

from __future__ import annotations

from penstock.broker.request import error_codes as module
from penstock.broker.request.error_codes import error_codes
from penstock.wire.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from penstock.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.schema import Struct, int32


def test_codes_at_any_depth() -> None:
    created = error_codes(CreateTopicsResponse)
    assert created is not None
    response = CreateTopicsResponse(topics=[CreatableTopicResult(error_code=code) for code in (0, 36)])
    assert list(created(response)) == [0, 36]
    listed = error_codes(ListOffsetsResponse)
    assert listed is not None
    partitions = [ListOffsetsPartitionResponse(error_code=3)]
    topics = [ListOffsetsTopicResponse(partitions=partitions)] * 2
    assert list(listed(ListOffsetsResponse(topics=topics))) == [3, 3]


def test_a_response_without_codes() -> None:
    class Plain(Struct):
        number: int = int32()

    assert error_codes(Plain) is None


def test_a_large_response_is_looked_at_in_part() -> None:
    created = error_codes(CreateTopicsResponse)
    assert created is not None
    response = CreateTopicsResponse(topics=[CreatableTopicResult(error_code=36)] * 5000)
    assert len(list(created(response))) == module.ITEMS_MAX
