"""Tables as classes: constructors, equality, and what versions do to fields."""

from __future__ import annotations

import pytest

from penstock.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse, MetadataResponseTopic
from penstock.wire.layout import in_versions


def test_every_field_has_kafkas_default() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.session_epoch, request.rack_id) == (
        -1,
        2**31 - 1,
        -1,
        "",
    )
    assert (request.cluster_id, request.replica_state, request.topics) == (None, None, [])
    assert FetchPartition().high_watermark == 2**63 - 1
    assert CreateTopicsRequest().timeout_ms == 60000


def test_lists_are_not_shared() -> None:
    first, second = CreateTopicsRequest(), CreateTopicsRequest()
    first.topics.append(CreatableTopic(name="t"))
    assert second.topics == []
    decode = METADATA.response_decoder(0)
    empty = memoryview(bytes(8))
    decode(empty, 0).topics.append(MetadataResponseTopic())
    assert decode(empty, 0).topics == []


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="tpoics"):
        CreateTopicsRequest(tpoics=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="tpoics"):
        CreateTopicsRequest().tpoics = []  # type: ignore[attr-defined]


def test_compared_and_shown_by_value() -> None:
    topic = CreatableTopic(name="t", num_partitions=3)
    assert topic == CreatableTopic(name="t", num_partitions=3)
    assert topic != CreatableTopic(name="t", num_partitions=4)
    assert topic != "t"
    assert repr(topic) == (
        "CreatableTopic(name='t', num_partitions=3, replication_factor=0, assignments=[], configs=[])"
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(topic)


def test_a_field_that_the_version_lacks_is_dropped_and_reads_as_its_default() -> None:
    response = MetadataResponse(cluster_id="c", controller_id=7, throttle_time_ms=5)
    for version, cluster_id, controller_id, throttle in (
        (0, None, -1, 0),
        (1, None, 7, 0),
        (2, "c", 7, 0),
        (3, "c", 7, 5),
    ):
        (encoded,) = METADATA.response_encoder(version)(response)
        assert isinstance(encoded, bytes)
        decoded = METADATA.response_decoder(version)(memoryview(encoded), 0)
        assert (decoded.cluster_id, decoded.controller_id, decoded.throttle_time_ms) == (
            cluster_id,
            controller_id,
            throttle,
        )


def test_null_is_refused_in_a_version_without_nullable_fields() -> None:
    (encoded,) = METADATA.request_encoder(1)(MetadataRequest(topics=None))
    assert encoded == b"\xff\xff\xff\xff"
    with pytest.raises(TypeError):
        METADATA.request_encoder(0)(MetadataRequest(topics=None))


def test_topic_names_and_ids_swap_at_their_version() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="t", topic_id=bytes(range(16)))])
    by_name, by_id = (
        FETCH.request_decoder(v)(memoryview(bytes(FETCH.request_encoder(v)(request)[0])), 0).topics[0]  # type: ignore[arg-type]
        for v in (12, 13)
    )
    assert (by_name.topic, by_name.topic_id) == ("t", bytes(16))
    assert (by_id.topic, by_id.topic_id) == ("", bytes(range(16)))


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        ("0+", (0, 99), ()),
        ("3+", (3, 4), (2,)),
        ("2-5", (2, 5), (1, 6)),
        ("4", (4,), (3, 5)),
        ("", (), (0, 1)),
    ],
)
def test_version_ranges(versions: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    assert all(in_versions(versions, version) for version in inside)
    assert not any(in_versions(versions, version) for version in outside)
