"""Fetches that a client repeats: their offsets are found, and answered with the bytes of the tables."""

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
from penstock.wire.fetch_form import CLIENT_FETCH, FetchForm
from penstock.wire.messages import encode_response
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


def encoded(version: int, request: FetchRequest) -> bytes:
    return b"".join(map(bytes, FETCH.request_encoder(version)(request)))  # type: ignore[arg-type]


def form_of(version: int, request: FetchRequest) -> FetchForm:
    form = FetchForm.of(version, request, encoded(version, request))
    assert form is not None
    return form


def asked(request: FetchRequest) -> list[FetchPartition]:
    return [partition for topic in request.topics for partition in topic.partitions]


@given(versions, requests, st.data(), st.binary(max_size=5))
def test_a_further_request_is_known_by_all_but_its_offsets(
    version: int, request: FetchRequest, data: st.DataObject, header: bytes
) -> None:
    form = form_of(version, request)
    offsets = tuple(data.draw(int64) for _ in asked(request))
    for partition, offset in zip(asked(request), offsets, strict=True):
        partition.fetch_offset = offset
    body = encoded(version, request)

    assert form.offsets(version, memoryview(header + body), len(header)) == offsets
    assert form.request(offsets) == request

    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] ^= 1
    found = form.offsets(version, memoryview(changed), 0)
    assert found != offsets
    if found is not None:
        for partition, offset in zip(asked(request), found, strict=True):
            partition.fetch_offset = offset
        assert encoded(version, request) == changed


@given(versions, requests, st.data())
def test_an_answer_has_the_bytes_of_the_tables(
    version: int, request: FetchRequest, data: st.DataObject
) -> None:
    told = [data.draw(st.tuples(int64, int64, int64, records)) for _ in asked(request)]
    left = iter(told)
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

    form = form_of(version, request)
    fields: list[bytes | int] = []
    news: list[tuple[int, Records]] = []
    for (before, position), (*offsets, found) in zip(form.entries, told, strict=True):
        fields += before, *offsets
        news += [(position, found)] if found else []
    written = form.write(7, (fields, news))

    assert b"".join(written) == b"".join(encode_response(FETCH, version, 7, response))  # type: ignore[arg-type]


def test_other_versions_and_other_sizes_are_other_forms() -> None:
    request = FetchRequest(topics=[TOPIC])
    body = memoryview(encoded(16, request))
    form = form_of(16, request)

    assert form.offsets(16, body, 0) == (5,)
    assert form.offsets(17, body, 0) is None
    assert form.offsets(16, body[:-1], 0) is None


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
def test_what_is_unusual_has_no_form(request_: FetchRequest) -> None:
    assert FetchForm.of(17, request_, encoded(17, request_)) is None


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
def test_what_comes_behind_the_topics_is_part_of_the_form(request_: FetchRequest) -> None:
    body = encoded(17, request_)
    form = form_of(17, request_)

    assert form.offsets(17, memoryview(body), 0) == (5,)
    assert form.offsets(17, memoryview(body[:-2] + b"\xff" + body[-1:]), 0) is None


def test_requests_before_topic_ids_have_no_form() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])

    assert FetchForm.of(12, request, encoded(12, request)) is None


def test_a_request_that_is_written_with_more_bytes_than_needed_has_no_form() -> None:
    body = encoded(16, FetchRequest(topics=[TOPIC]))
    # The number of topics as a varint of two bytes.
    longer = body[:21] + b"\x82\x00" + body[22:]
    request = FETCH.request_decoder(16)(memoryview(longer), 0)

    assert len(request.topics) == 1
    assert FetchForm.of(16, request, longer) is None


def test_a_client_s_request_is_left_as_it_came() -> None:
    frame = memoryview(b"head" + encoded(16, FetchRequest(topics=[TOPIC])))
    body, start, decode = CLIENT_FETCH.request_decoder(16)(frame, 4)

    assert (body, start) == (frame, 4)
    assert decode(body, start).topics == [TOPIC]
