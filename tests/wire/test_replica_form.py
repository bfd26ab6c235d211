"""The requests of a follower that keeps up: read and written as the other codecs do, and no others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import FETCH
from penstock.wire.messages import encode_request
from penstock.wire.replica_fetch import REPLICA_FETCH, ReplicaAsk, Wanted
from penstock.wire.replica_form import MOST, AskForm

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
client_ids = st.sampled_from([None, "", "broker-2-fetcher-0", "ü"])
#: partition, leader epoch, fetch offset, last fetched epoch, log start offset
positions = st.lists(st.tuples(int32, int32, int64, int32, int64), min_size=1, max_size=MOST)
TOPIC_ID = TopicId(b"t" * 16)
CLIENT_ID = "broker-2"
ASK = ReplicaAsk(500, 1, 1000, 7, 3, 2, 9, [(TOPIC_ID, 0, 4, 5, 4, 0, 100)])


def frame(client_id: str | None, correlation_id: int, ask: ReplicaAsk) -> bytes:
    """A request as it goes out."""
    parts = encode_request(REPLICA_FETCH, FETCH.max_version, correlation_id, client_id, ask)
    return b"".join(map(bytes, parts))  # type: ignore[arg-type]


@given(client_ids, int32, int32, st.binary(min_size=16, max_size=16), positions)
def test_how_far_a_follower_is_can_be_read_and_written(
    client_id: str | None,
    correlation_id: int,
    session_epoch: int,
    topic_id: bytes,
    positions: list[tuple[int, int, int, int, int]],
) -> None:
    form = AskForm(client_id, ASK)
    wanted: list[Wanted] = [(TopicId(topic_id), *position, 100) for position in positions]
    ask = ASK._replace(session_epoch=session_epoch, wanted=wanted)
    sent = frame(client_id, correlation_id, ask)
    fields: list[Any] = [session_epoch, 2, topic_id, len(positions) + 1]
    for position in positions:
        fields += (*position, 100, 0)

    assert form.shapes[len(sent) - 4](sent[4:]) == (form.head, correlation_id, form.same, *fields, form.tail)
    assert form.write(correlation_id, fields) == sent
    assert form.fits(client_id, ask)


@pytest.mark.parametrize(
    "other",
    [
        ASK._replace(max_wait_ms=499),
        ASK._replace(min_bytes=2),
        ASK._replace(max_bytes=999),
        ASK._replace(session_id=8),
        ASK._replace(replica=3),
        ASK._replace(broker_epoch=10),
        ASK._replace(wanted=[(TOPIC_ID, index, 4, 5, 4, 0, 100) for index in range(MOST + 1)]),
        ASK._replace(wanted=[]),
        ASK._replace(forgotten=[(TOPIC_ID, 1)]),
    ],
)
def test_a_request_that_differs_in_anything_else_is_another(other: ReplicaAsk) -> None:
    form = AskForm(CLIENT_ID, ASK)
    assert not form.fits(CLIENT_ID, other)
    sent = frame(CLIENT_ID, 1, other)[4:]
    if len(sent) in form.shapes:
        head, _, same, *_, tail = form.shapes[len(sent)](sent)
        assert (head, same, tail) != (form.head, form.same, form.tail)


def test_another_client_is_another() -> None:
    form = AskForm(CLIENT_ID, ASK)
    assert form.fits(CLIENT_ID, ASK)
    assert not form.fits("broker-3", ASK)
    assert not form.fits(None, ASK)
