"""The requests of a follower that keeps up: a template reads and writes the bytes of the tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.messages import encode_request
from penstock.wire.repeated_replica_fetch import MOST, ReplicaFetchTemplate
from tests.wire.replica_requests import Position, ReplicaRequest

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
client_ids = st.sampled_from([None, "", "broker-2-fetcher-0", "ü"])
#: partition, leader epoch, fetch offset, last fetched epoch, log start offset
positions = st.lists(st.tuples(int32, int32, int64, int32, int64), min_size=1, max_size=MOST)
TOPIC_ID = TopicId(b"t" * 16)
CLIENT_ID = "broker-2"
VERSION = ReplicaFetchTemplate.VERSIONS[-1]
REQUEST = ReplicaRequest(500, 1, 1000, 7, 3, 2, 9, [(TOPIC_ID, 0, 4, 5, 4, 0, 100)])


def frame(client_id: str | None, correlation_id: int, request: ReplicaRequest) -> bytes:
    """A request as it goes out."""
    parts = encode_request(FETCH, VERSION, correlation_id, client_id, request.message())
    return b"".join(map(bytes, parts))  # type: ignore[arg-type]


def template_of(client_id: str | None, request: ReplicaRequest) -> ReplicaFetchTemplate:
    template = ReplicaFetchTemplate.of(VERSION, client_id, request.message())
    assert template is not None
    return template


@given(client_ids, int32, int32, st.binary(min_size=16, max_size=16), positions)
def test_how_far_a_follower_is_can_be_read_and_written(
    client_id: str | None,
    correlation_id: int,
    session_epoch: int,
    topic_id: bytes,
    positions: list[tuple[int, int, int, int, int]],
) -> None:
    template = template_of(client_id, REQUEST)
    named: list[Position] = [(TopicId(topic_id), *position, 100) for position in positions]
    request = REQUEST._replace(session_epoch=session_epoch, positions=named)
    sent = frame(client_id, correlation_id, request)
    fields: list[Any] = [session_epoch, 2, topic_id, len(positions) + 1]
    for position in positions:
        fields += (*position, 100, 0)

    assert template.shapes[len(sent) - 4](sent[4:]) == (
        template.head,
        correlation_id,
        template.same,
        *fields,
        template.tail,
    )
    assert template.write(correlation_id, fields) == sent
    assert template.fits(client_id, request.message())


@pytest.mark.parametrize(
    "other",
    [
        REQUEST._replace(max_wait_ms=499),
        REQUEST._replace(min_bytes=2),
        REQUEST._replace(max_bytes=999),
        REQUEST._replace(session_id=8),
        REQUEST._replace(replica=3),
        REQUEST._replace(broker_epoch=10),
        REQUEST._replace(positions=[(TOPIC_ID, index, 4, 5, 4, 0, 100) for index in range(MOST + 1)]),
        REQUEST._replace(positions=[]),
        REQUEST._replace(forgotten=[(TOPIC_ID, 1)]),
    ],
)
def test_a_request_that_differs_in_anything_else_is_another(other: ReplicaRequest) -> None:
    template = template_of(CLIENT_ID, REQUEST)
    assert not template.fits(CLIENT_ID, other.message())
    sent = frame(CLIENT_ID, 1, other)[4:]
    if len(sent) in template.shapes:
        head, _, same, *_, tail = template.shapes[len(sent)](sent)
        assert (head, same, tail) != (template.head, template.same, template.tail)


def test_another_client_is_another() -> None:
    template = template_of(CLIENT_ID, REQUEST)
    assert template.fits(CLIENT_ID, REQUEST.message())
    assert not template.fits("broker-3", REQUEST.message())
    assert not template.fits(None, REQUEST.message())


def with_tags() -> FetchRequest:
    request = REQUEST.message()
    request.topics[0].partitions[0].replica_directory_id = b"d" * 16
    return request


def with_(**fields: Any) -> FetchRequest:
    request = REQUEST.message()
    for name, value in fields.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    "request_",
    [
        with_tags(),
        with_(rack_id="r"),
        with_(cluster_id="c"),
        with_(last_checksum=1),
        with_(replica_state=None),
        REQUEST._replace(positions=[]).message(),
        REQUEST._replace(positions=[*REQUEST.positions, (TopicId(b"u" * 16), 0, 4, 5, 4, 0, 100)]).message(),
        REQUEST._replace(forgotten=[(TOPIC_ID, 1)]).message(),
    ],
)
def test_an_unusual_request_has_no_template(request_: FetchRequest) -> None:
    assert ReplicaFetchTemplate.of(VERSION, CLIENT_ID, request_) is None
