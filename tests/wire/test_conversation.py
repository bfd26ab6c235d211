"""The client side: a handshake, responses in the versions of their requests, errors for anything else."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest

from penstock.model.errors import ErrorCode, ProtocolError, UnsupportedVersion
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from penstock.wire.apis.fetch import FETCH, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from penstock.wire.apis.produce import PRODUCE, ProduceRequest
from penstock.wire.compiler import Part
from penstock.wire.conversation import Conversation, Response, common_version
from penstock.wire.messages import decode_request_header, encode_response
from penstock.wire.schema import Struct


def _bytes(parts: list[Part]) -> bytes:
    return b"".join(cast("list[bytes]", parts))


def _answer(api: Api[Any, Any], version: int, correlation_id: int, response: Struct) -> bytes:
    return _bytes(encode_response(api, version, correlation_id, response))


def _metadata(correlation_id: int, version: int, controller_id: int) -> bytes:
    return _answer(METADATA, version, correlation_id, MetadataResponse(controller_id=controller_id))


def _requested(parts: list[Part]) -> tuple[int, int, int]:
    """API, version and correlation id of a request."""
    return decode_request_header(memoryview(_bytes(parts))[4:])[:3]


def _ready(*served: ApiVersion) -> Conversation:
    conversation = Conversation("me")
    _, version, correlation_id = _requested(conversation.handshake())
    theirs = ApiVersionsResponse(api_keys=list(served))
    assert conversation.receive(_answer(API_VERSIONS, version, correlation_id, theirs)) == []
    assert conversation.is_ready
    return conversation


class TestHandshake:
    def test_agrees_on_the_highest_common_versions(self) -> None:
        conversation = _ready(
            ApiVersion(api_key=3, max_version=11), ApiVersion(api_key=1, min_version=4, max_version=99)
        )
        assert (conversation.version(METADATA), conversation.version(FETCH)) == (11, 18)
        _, parts = conversation.request(METADATA, MetadataRequest())
        assert _requested(parts)[:2] == (3, 11)
        with pytest.raises(UnsupportedVersion, match="Produce"):
            conversation.request(PRODUCE, ProduceRequest())
        assert conversation.in_flight == 1, "a request that cannot be sent is not awaited"

    def test_the_handshake_is_sent_once(self) -> None:
        conversation = Conversation("me")
        assert _requested(conversation.handshake())[:2] == (18, 4)
        assert conversation.handshake() == []
        assert not conversation.is_ready
        assert _ready().handshake() == []

    @pytest.mark.parametrize(
        ("theirs", "second"),
        [
            ([ApiVersion(api_key=18, max_version=3)], 3),
            ([ApiVersion(api_key=18, max_version=2)], 2),
            ([ApiVersion(api_key=18, max_version=99)], 3),
            ([], 0),
        ],
    )
    def test_falls_back_to_a_version_of_the_peer(self, theirs: list[ApiVersion], second: int) -> None:
        """KIP-511: the refusal is in version 0 for any request; it may list the known versions, or none."""
        conversation = Conversation("me")
        _, _, correlation_id = _requested(conversation.handshake())
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=theirs)
        assert conversation.receive(_answer(API_VERSIONS, 0, correlation_id, refusal)) == []
        assert not conversation.is_ready
        api_key, version, correlation_id = _requested(conversation.handshake())
        assert (api_key, version) == (18, second)
        serves = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, max_version=5)])
        conversation.receive(_answer(API_VERSIONS, version, correlation_id, serves))
        assert conversation.version(METADATA) == 5

    def test_ends_if_the_peer_refuses_for_good(self) -> None:
        conversation = Conversation("me")
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        with pytest.raises(ProtocolError, match="refused with error 35"):
            for _ in range(API_VERSIONS.max_version + 2):
                _, _, correlation_id = _requested(conversation.handshake())
                conversation.receive(_answer(API_VERSIONS, 0, correlation_id, refusal))

    @pytest.mark.parametrize("body", [b"", b"\0", b"\0\x23", b"\0\0\x7f"])
    def test_broken_answers_to_it(self, body: bytes) -> None:
        conversation = Conversation("me")
        _, _, correlation_id = _requested(conversation.handshake())
        frame = struct.pack(">i", correlation_id) + body
        with pytest.raises(ProtocolError):
            conversation.receive(struct.pack(">i", len(frame)) + frame)


def test_answers_are_read_in_the_versions_of_their_requests() -> None:
    conversation = Conversation("me")
    first, _ = conversation.request(METADATA, MetadataRequest(), version=1)
    second, parts = conversation.request(METADATA, MetadataRequest(), version=12)
    header = decode_request_header(memoryview(_bytes(parts))[4:])
    assert (header.api_version, header.correlation_id, header.client_id) == (12, second, "me")
    assert conversation.in_flight == 2
    answers = _metadata(first, 1, 5) + _metadata(second, 12, 6)
    assert conversation.receive(answers[:10]) == []
    assert conversation.receive(answers[10:]) == [
        Response(first, MetadataResponse(controller_id=5)),
        Response(second, MetadataResponse(controller_id=6)),
    ]
    assert conversation.in_flight == 0


def test_an_answer_out_of_order_ends_the_conversation() -> None:
    conversation = Conversation(None)
    first, _ = conversation.request(METADATA, MetadataRequest(), version=1)
    second, _ = conversation.request(METADATA, MetadataRequest(), version=1)
    with pytest.raises(ProtocolError, match="awaited"):
        conversation.receive(_metadata(second, 1, 0))
    with pytest.raises(ProtocolError, match="over"):
        conversation.receive(_metadata(first, 1, 0))
    with pytest.raises(ProtocolError, match="over"):
        conversation.request(METADATA, MetadataRequest(), version=1)


def test_a_response_without_a_request() -> None:
    conversation = Conversation(None)
    conversation.request(PRODUCE, ProduceRequest(acks=0), version=7, answered=False)
    with pytest.raises(ProtocolError, match="awaited"):
        conversation.receive(_metadata(1, 1, 0))


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0" * 4 + b"\x7f\xff\xff\xff"])
def test_a_broken_body_ends_the_conversation(body: bytes) -> None:
    conversation = Conversation(None)
    correlation_id, _ = conversation.request(METADATA, MetadataRequest(), version=1)
    frame = struct.pack(">i", correlation_id) + body
    with pytest.raises(ProtocolError, match="MetadataResponse"):
        conversation.receive(struct.pack(">i", len(frame)) + frame)
    with pytest.raises(ProtocolError, match="over"):
        conversation.received(0)


def test_a_failed_conversation_stays_closed_for_buffered_reads() -> None:
    conversation = Conversation(None)
    conversation.request(METADATA, MetadataRequest(), version=1)
    conversation.get_buffer()[:8] = struct.pack(">ii", 4, 99)
    with pytest.raises(ProtocolError, match="awaited"):
        conversation.received(8)
    with pytest.raises(ProtocolError, match="over"):
        conversation.received(0)


def test_a_response_too_large_is_refused_by_its_size() -> None:
    conversation = Conversation(None, max_response_bytes=1000)
    conversation.request(METADATA, MetadataRequest(), version=1)
    with pytest.raises(ProtocolError, match="frame of 1001 bytes"):
        conversation.receive(struct.pack(">i", 1001))


def test_requests_in_flight_are_bounded() -> None:
    conversation = Conversation(None, max_in_flight=2)
    for _ in range(2):
        assert conversation.has_room
        conversation.request(METADATA, MetadataRequest(), version=1)
    assert not conversation.has_room
    with pytest.raises(AssertionError, match="in flight"):
        conversation.request(METADATA, MetadataRequest(), version=1)


@pytest.mark.parametrize("version", [8, 12])
def test_a_forwarded_request_goes_and_comes_back_as_bytes(version: int) -> None:
    """In a flexible version (12) and in one that is not: the headers differ, the bodies stay untouched."""
    conversation = Conversation("me")
    request, response = MetadataRequest(topics=None), MetadataResponse(controller_id=7)
    (body,) = METADATA.request_encoder(version)(request)
    correlation_id, parts = conversation.forward(METADATA, version, cast(bytes, body))
    _, expected = Conversation("me").request(METADATA, request, version=version)
    assert _bytes(parts) == _bytes(expected)
    assert parts[1] is body
    (answer,) = conversation.receive(_answer(METADATA, version, correlation_id, response))
    assert bytes(answer.message) == _bytes(METADATA.response_encoder(version)(response))


@pytest.mark.parametrize("version", [4, 12, 18])
def test_record_batches_are_views_of_the_receive_buffer(version: int) -> None:
    """A megabyte for a replica: read into its place, and never copied on its way to the log."""
    records = bytes(range(256)) * 4096
    conversation = Conversation(None)
    correlation_id, _ = conversation.request(FETCH, FetchRequest(), version=version)
    partition = PartitionData(records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    stream = _answer(FETCH, version, correlation_id, response)
    answers: list[Response] = []
    buffers = set()
    while stream:
        room = conversation.get_buffer()
        size = min(len(room), len(stream))
        room[:size] = stream[:size]
        stream = stream[size:]
        buffers.add(id(room.obj))
        answers += conversation.received(size)
    received = answers[0].message.responses[0].partitions[0].records
    assert received == records
    assert id(received.obj) in buffers


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
