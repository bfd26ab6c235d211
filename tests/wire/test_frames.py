"""The asking side: frames out of a stream, answers to requests, a version both sides speak."""

from __future__ import annotations

import struct
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError, UnsupportedVersion
from penstock.wire.apis.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from penstock.wire.apis.produce import PRODUCE, ProduceRequest
from penstock.wire.frames import Conversation, FrameSplitter, Response, common_version
from penstock.wire.messages import decode_request_header, encode_response


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_frames_come_out_as_they_went_in(frames: list[bytes], step: int) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    splitter = FrameSplitter()
    cut = [frame for i in range(0, len(stream), step) for frame in splitter.feed(stream[i : i + step])]
    assert cut == frames


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_sizes_out_of_bounds(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"frame of {size} bytes"):
        FrameSplitter(max_bytes=100).feed(struct.pack(">i", size))


def _answer(correlation_id: int, version: int, controller_id: int) -> bytes:
    response = MetadataResponse(controller_id=controller_id)
    return b"".join(cast("list[bytes]", encode_response(METADATA, version, correlation_id, response)))


def test_answers_are_read_in_the_versions_of_their_requests() -> None:
    conversation = Conversation("me")
    first, _ = conversation.ask(METADATA, 1, MetadataRequest())
    second, parts = conversation.ask(METADATA, 12, MetadataRequest())
    header = decode_request_header(memoryview(cast(bytes, parts[0]))[4:])
    assert (header.api_version, header.correlation_id, header.client_id) == (12, second, "me")
    assert conversation.in_flight == 2
    answers = _answer(first, 1, 5) + _answer(second, 12, 6)
    assert conversation.receive(answers[:10]) == []
    assert conversation.receive(answers[10:]) == [
        Response(first, MetadataResponse(controller_id=5)),
        Response(second, MetadataResponse(controller_id=6)),
    ]
    assert conversation.in_flight == 0


def test_an_answer_out_of_order_ends_the_conversation() -> None:
    conversation = Conversation(None)
    conversation.ask(METADATA, 1, MetadataRequest())
    second, _ = conversation.ask(METADATA, 1, MetadataRequest())
    with pytest.raises(ProtocolError, match="awaited"):
        conversation.receive(_answer(second, 1, 0))


def test_an_answer_that_nobody_asked_for() -> None:
    conversation = Conversation(None)
    conversation.ask(PRODUCE, 7, ProduceRequest(acks=0), answered=False)
    with pytest.raises(ProtocolError, match="awaited"):
        conversation.receive(_answer(1, 1, 0))


def _serves(min_version: int, max_version: int) -> ApiVersionsResponse:
    produce = ApiVersion(api_key=0, min_version=min_version, max_version=max_version)
    return ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=13), produce])


@pytest.mark.parametrize(
    ("low", "high", "version"), [(0, 13, 13), (0, 9, 9), (0, 99, 13), (3, 3, 3), (13, 20, 13)]
)
def test_the_highest_common_version_is_chosen(low: int, high: int, version: int) -> None:
    assert common_version(PRODUCE, _serves(low, high)) == version


@pytest.mark.parametrize("theirs", [_serves(0, 2), _serves(14, 20), ApiVersionsResponse()])
def test_no_common_version(theirs: ApiVersionsResponse) -> None:
    with pytest.raises(UnsupportedVersion, match="Produce"):
        common_version(PRODUCE, theirs)
