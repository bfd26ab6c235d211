"""Headers and whole frames, against bytes written out by hand."""

from __future__ import annotations

import struct
from typing import cast

import pytest

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.ports import File, FileRange
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.apis.describe_topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.wire.apis.fetch import FETCH, FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.produce import (
    PRODUCE,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.messages import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    response_correlation_id,
    response_skeleton,
)

PRODUCE_REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30000,
    topic_data=[
        TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=2, records=memoryview(b"R" * 5))]
        )
    ],
)


def joined(parts: list[object]) -> bytes:
    return b"".join(cast("list[bytes]", parts))


def test_classic_request() -> None:
    frame = (
        b"\0\0\0\x07\0\0\0\x2a\0\x03abc"  # header v1: Produce v7, correlation 42, client "abc"
        b"\xff\xff\xff\xff\0\0\x75\x30"  # no transaction, acks -1, 30 s
        b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x02\0\0\0\x05RRRRR"
    )
    encoded = joined([*encode_request(PRODUCE, 7, 42, "abc", PRODUCE_REQUEST)])
    assert encoded == struct.pack(">i", len(frame)) + frame
    header = decode_request_header(memoryview(frame))
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (0, 7, 42, "abc")
    assert PRODUCE.request_decoder(7)(memoryview(frame), header.body_offset) == PRODUCE_REQUEST


def test_flexible_request() -> None:
    frame = (
        b"\0\0\0\x09\0\0\0\x2a\xff\xff\0"  # header v2: no client id, no tags
        b"\0\xff\xff\0\0\x75\x30\x02\x02t\x02\0\0\0\x02\x06RRRRR\0\0\0"
    )
    encoded = joined([*encode_request(PRODUCE, 9, 42, None, PRODUCE_REQUEST)])
    assert encoded == struct.pack(">i", len(frame)) + frame
    header = decode_request_header(memoryview(frame))
    assert (header.client_id, header.body_offset) == (None, 11)
    assert PRODUCE.request_decoder(9)(memoryview(frame), header.body_offset) == PRODUCE_REQUEST


def test_records_are_views_of_the_frame() -> None:
    frame = memoryview(bytearray(joined([*encode_request(PRODUCE, 9, 1, "c", PRODUCE_REQUEST)])))[4:]
    request = PRODUCE.request_decoder(9)(frame, decode_request_header(frame).body_offset)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj


def test_header_tags_are_skipped() -> None:
    frame = b"\0\3\0\x09\0\0\0\1\0\1c" + b"\x01\x05\x02xy" + b"body"
    header = decode_request_header(memoryview(frame))
    assert frame[header.body_offset :] == b"body"


def test_header_of_an_unknown_api() -> None:
    header = decode_request_header(memoryview(b"\x03\xe7\0\0\0\0\0\1\0\1cwhatever"))
    assert (header.api_key, header.client_id, header.body_offset) == (999, "c", 11)


def test_a_client_id_need_not_be_utf8() -> None:
    assert decode_request_header(memoryview(b"\0\3\0\0\0\0\0\1\0\2\xfc!")).client_id == "\ufffd!"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\0\0\0\0\1\0",
        b"\0\3\0\0\0\0\0\1\0\5abc",
        b"\0\3\0\0\0\0\0\1\xff\xfe",
        b"\0\3\0\x09\0\0\0\1\0\1c",
        b"\0\3\0\x09\0\0\0\1\0\1c\x01\x00\x05",
    ],
)
def test_broken_request_headers(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(memoryview(frame))


def test_bytes_after_a_request_are_ignored() -> None:
    """As Kafka does: it never looks whether anything is left."""
    assert METADATA.request_decoder(0)(memoryview(b"\0\0\0\0more"), 0) == MetadataRequest(topics=[])


def test_responses_with_either_header() -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                partition_responses=[PartitionProduceResponse(index=2, base_offset=9, log_start_offset=1)],
            )
        ]
    )
    answer = b"\0\0\0\x02\0\0" + struct.pack(">qqq", 9, -1, 1)
    classic = b"\0\0\0\x2a" + b"\0\0\0\x01\0\x01t\0\0\0\x01" + answer + b"\0\0\0\0"
    flexible = b"\0\0\0\x2a\0" + b"\x02\x02t\x02" + answer + b"\x01\0\0\0" + b"\0\0\0\0\0"
    for version, frame in ((7, classic), (9, flexible)):
        encoded = joined([*encode_response(PRODUCE, version, 42, response)])
        assert encoded == struct.pack(">i", len(frame)) + frame
        assert response_correlation_id(memoryview(frame)) == 42
        assert decode_response(PRODUCE, version, memoryview(frame)) == response


def test_tagged_fields_of_a_response() -> None:
    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=5)
    partition = PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader)
    response = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])
    encoded = joined([*PRODUCE.response_encoder(10)(response)])
    tags = b"\x01\x00\x09\0\0\0\x03\0\0\0\x05\0"  # one tag, number 0, nine bytes: two int32 and no tags
    assert encoded == (
        b"\x02\x01\x02\0\0\0\0\0\x06" + struct.pack(">qqq", 0, -1, -1) + b"\x01\0" + tags + b"\0\0\0\0\0\0"
    )


@pytest.mark.parametrize("version", [0, 3, 4])
def test_api_versions_keeps_the_old_response_header(version: int) -> None:
    """KIP-511: the client does not know our versions yet."""
    response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = memoryview(joined([*encode_response(API_VERSIONS, version, 7, response)]))[4:]
    assert bytes(frame[:6]) == b"\0\0\0\x07\0\x23"
    assert decode_response(API_VERSIONS, version, frame) == response


def test_the_request_header_of_api_versions_is_flexible() -> None:
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    encoded = joined([*encode_request(API_VERSIONS, 3, 1, "c", request)])
    assert encoded[4:] == b"\0\x12\0\x03\0\0\0\1\0\1c\0" + b"\x02n\x021\0"


def test_structures_that_may_be_null() -> None:
    """KIP-893: one byte says whether the structure is there."""
    decode, encode = (
        DESCRIBE_TOPIC_PARTITIONS.request_decoder(0),
        DESCRIBE_TOPIC_PARTITIONS.request_encoder(0),
    )
    for cursor, wire in (
        (None, b"\xff"),
        (Cursor(topic_name="t", partition_index=1), b"\x01\x02t\0\0\0\x01\0"),
    ):
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
        encoded = joined([*encode(request)])
        assert encoded == b"\x02\x02t\0\0\0\x07\xd0" + wire + b"\0"
        assert decode(memoryview(encoded), 0) == request


def _fetch_response(*records: bytes | FileRange | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=part) for i, part in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_record_batches_are_sent_as_they_are(version: int) -> None:
    """Not copied, not even read: a range of a file goes out as a range of a file."""
    first, second = b"A" * 100, FileRange(cast(File, None), 4096, 300)
    parts = encode_response(FETCH, version, 1, _fetch_response(first, None, second, b""))
    assert parts[1] is first
    assert parts[3] is second
    assert len(parts) == 5
    assert struct.unpack_from(">i", cast(bytes, parts[0])) == (sum(map(len, parts)) - 4,)
    frame = joined([second.size * b"B" if part is second else part for part in parts])
    assert decode_response(FETCH, version, memoryview(frame)[4:]) == _fetch_response(
        first, None, b"B" * 300, b""
    )


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\x01\x00\x05"])
def test_broken_responses(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        response_correlation_id(memoryview(frame))
        decode_response(METADATA, 9, memoryview(frame))


def acknowledgement(index: int, base_offset: int, log_start_offset: int) -> ProduceResponse:
    answer = PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=log_start_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])])


@pytest.mark.parametrize("version", range(5, PRODUCE.max_version + 1))
@pytest.mark.parametrize("numbers", [(0, 0, 0), (4999, 2**62 + 1, 2**40), (2**31 - 1, -1, -1)])
def test_a_skeleton_gives_the_bytes_of_the_encoder(version: int, numbers: tuple[int, int, int]) -> None:
    fill = response_skeleton(PRODUCE, version, acknowledgement)
    for correlation_id in (0, 2**31 - 1):
        assert joined([*fill(correlation_id, numbers)]) == joined(
            [*encode_response(PRODUCE, version, correlation_id, acknowledgement(*numbers))]
        )
