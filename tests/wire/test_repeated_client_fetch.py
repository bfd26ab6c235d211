"""Fetches that a client repeats: a template finds their offsets, and writes the bytes of the tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.apis.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.wire.messages import decode_request_header, encode_request, encode_response
from penstock.wire.repeated_client_fetch import ClientFetchTemplate
from penstock.wire.schema import Records

BY_ID = range(13, FETCH.max_version + 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
versions = st.sampled_from(BY_ID)
partitions = st.builds(
    FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)
topics = st.builds(
    FetchTopic,
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, min_size=1, max_size=10),
)
requests = st.builds(
    FetchRequest,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.sampled_from([0, 1, 2]),
    session_epoch=int32,
    topics=st.lists(topics, min_size=1, max_size=3, unique_by=lambda topic: topic.topic_id),
    rack_id=st.text(max_size=3),
)
records = st.sampled_from([b"", b"", b"r", b"r" * 126, b"r" * 127, b"r" * 20_000])
TOPIC = FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(partition=3, fetch_offset=5)])


def encoded(version: int, request: FetchRequest, correlation_id: int = 7, client_id: str = "c") -> bytes:
    """A frame without its size."""
    parts = encode_request(FETCH, version, correlation_id, client_id, request)
    return b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]


def body_at(frame: bytes) -> int:
    return decode_request_header(memoryview(frame)).body_offset


def template_of(version: int, request: FetchRequest) -> ClientFetchTemplate | None:
    frame = encoded(version, request)
    return ClientFetchTemplate.of(request, frame, body_at(frame))


def usual_template(version: int, request: FetchRequest) -> ClientFetchTemplate:
    template = template_of(version, request)
    assert template is not None
    return template


def requested(request: FetchRequest) -> list[FetchPartition]:
    return [partition for topic in request.topics for partition in topic.partitions]


@given(versions, requests, st.data(), int32)
def test_a_further_request_is_known_by_all_but_its_offsets(
    version: int, request: FetchRequest, data: st.DataObject, correlation_id: int
) -> None:
    template = usual_template(version, request)
    offsets = tuple(data.draw(int64) for _ in requested(request))
    for partition, offset in zip(requested(request), offsets, strict=True):
        partition.fetch_offset = offset
    frame = encoded(version, request, correlation_id)

    assert template.read(memoryview(frame)) == (correlation_id, offsets)
    assert template.request(offsets) == request

    changed = bytearray(frame)
    changed[data.draw(st.integers(0, len(frame) - 1))] ^= 1
    found = template.read(memoryview(changed))
    assert found != (correlation_id, offsets)
    if found is not None:
        correlation_id, offsets = found[0], tuple(found[1])
        for partition, offset in zip(requested(request), offsets, strict=True):
            partition.fetch_offset = offset
        assert encoded(version, request, correlation_id) == changed


@given(versions, requests, st.data())
def test_an_answer_has_the_bytes_of_the_tables(
    version: int, request: FetchRequest, data: st.DataObject
) -> None:
    reported = [data.draw(st.tuples(int64, int64, int64, records)) for _ in requested(request)]
    left = iter(reported)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        high_watermark=high_watermark,
                        last_stable_offset=stable,
                        log_start_offset=log_start,
                        aborted_transactions=[] if request.isolation_level == 1 else None,
                        records=found,
                    )
                    for partition, (high_watermark, stable, log_start, found) in zip(
                        topic.partitions, left, strict=False
                    )
                ],
            )
            for topic in request.topics
        ]
    )

    template = usual_template(version, request)
    fields: list[bytes | int] = []
    news: list[tuple[int, Records]] = []
    for (before, position), (*offsets, found) in zip(template.entries, reported, strict=True):
        fields += before, *offsets
        news += [(position, found)] if found else []
    written = template.write(7, (fields, news))

    assert b"".join(written) == b"".join(encode_response(FETCH, version, 7, response))  # type: ignore[arg-type]


def test_other_versions_clients_and_sizes_have_other_templates() -> None:
    request = FetchRequest(topics=[TOPIC])
    frame = memoryview(encoded(16, request))
    template = usual_template(16, request)

    assert template.read(frame) == (7, (5,))
    assert template.read(memoryview(encoded(17, request))) is None
    assert template.read(memoryview(encoded(16, request, client_id="d"))) is None
    assert template.read(frame[:-1]) is None


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(),
        FetchRequest(topics=[FetchTopic(topic_id=b"t" * 16)]),
        FetchRequest(topics=[TOPIC, FetchTopic(topic_id=b"e" * 16)]),
        FetchRequest(topics=[FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition()] * 33)]),
        FetchRequest(topics=[TOPIC, TOPIC]),
        FetchRequest(topics=[TOPIC], session_id=1),
        FetchRequest(
            topics=[
                FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(replica_directory_id=b"d" * 16)])
            ]
        ),
    ],
    ids=["nothing", "an empty topic", "an empty topic at the end", "very many", "twice", "a session", "tags"],
)
def test_an_unusual_request_has_no_template(request_: FetchRequest) -> None:
    assert template_of(17, request_) is None


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(topics=[TOPIC], replica_state=ReplicaState(replica_id=2, replica_epoch=3)),
        FetchRequest(topics=[TOPIC], cluster_id="here"),
        FetchRequest(
            topics=[TOPIC], forgotten_topics_data=[ForgottenTopic(topic_id=b"f" * 16, partitions=[1])]
        ),
    ],
    ids=["a replica", "a cluster", "forgotten topics"],
)
def test_the_fields_behind_the_topics_are_part_of_the_template(request_: FetchRequest) -> None:
    frame = encoded(17, request_)
    template = usual_template(17, request_)

    assert template.read(memoryview(frame)) == (7, (5,))
    assert template.read(memoryview(frame[:-2] + b"\xff" + frame[-1:])) is None


def test_requests_before_topic_ids_have_no_template() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])

    assert template_of(12, request) is None


def test_a_request_that_is_written_with_more_bytes_than_needed_has_no_template() -> None:
    frame = encoded(16, FetchRequest(topics=[TOPIC]))
    at = body_at(frame)
    # The number of topics as a varint of two bytes.
    longer = frame[: at + 21] + b"\x82\x00" + frame[at + 22 :]
    request = FETCH.request_decoder(16)(memoryview(longer), at)

    assert len(request.topics) == 1
    assert ClientFetchTemplate.of(request, longer, at) is None
