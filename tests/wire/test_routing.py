"""Leader routing: the leaders that a client knows after each response, and when it refreshes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode
from penstock.wire.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.routing import NO_LEADER, ClusterView, Leader, Node, Reaction, reaction_to

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
BROKERS = [MetadataResponseBroker(node_id=i, host=f"h{i}", port=9092) for i in (1, 2, 3)]


def topic(*leaders: tuple[int, int], name: str = "t", topic_id: bytes = ID) -> MetadataResponseTopic:
    """A topic whose partitions have these (leader, epoch)."""
    partitions = [
        MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
        for i, (leader, epoch) in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


def metadata(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, cluster_id="c", controller_id=2, topics=list(topics))


def view_of(*topics: MetadataResponseTopic) -> ClusterView:
    view = ClusterView([("b", 1)])
    view.update(metadata(*topics))
    return view


def test_topics_go_by_name_and_by_id() -> None:
    view = view_of(topic((1, 5), (2, 6)))
    for key in ("t", ID):
        assert view.partitions(key) == 2
        assert view.leader(key, 1) == Leader(2, 6)
        assert view.leader_node(key, 0) == Node(1, "h1", 9092, None)
        assert view.leader_node(key, 2) is None
    assert view.topic_id("t") == ID
    assert (view.cluster_id, view.controller_id) == ("c", 2)
    assert (view.partitions("x"), view.leader("x", 0), view.topic_id("x")) == (0, None, None)


def test_a_leader_of_an_older_epoch_is_ignored() -> None:
    view = view_of(topic((1, 5)))
    assert view.update(metadata(topic((2, 6))))
    assert view.update(metadata(topic((1, 5)))), "a broker that lags behind has nothing new"
    assert view.leader("t", 0) == Leader(2, 6)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1))
def test_the_newest_epoch_stays_in_any_order_of_responses(reported: list[tuple[int, int]]) -> None:
    view = ClusterView([("b", 1)])
    for leader in reported:
        view.update(metadata(topic(leader)))
    believed = view.leader("t", 0)
    assert believed is not None
    assert believed.epoch == max(epoch for _, epoch in reported)


def test_a_topic_made_anew_starts_over() -> None:
    view = view_of(topic((1, 5), (1, 5)))
    view.update(metadata(topic((2, 0), topic_id=OTHER_ID)))
    assert view.leader("t", 0) == Leader(2, 0)
    assert view.partitions("t") == 1
    assert view.leader(ID, 0) is None
    assert view.leader(OTHER_ID, 0) == Leader(2, 0)


def test_without_epochs_the_last_word_counts() -> None:
    view = view_of(topic((1, -1)))
    view.update(metadata(topic((2, -1))))
    assert view.leader("t", 0) == Leader(2, -1)


@pytest.mark.parametrize(
    "partial",
    [
        topic((1, 5), (NO_LEADER, 6)),
        topic((1, 5), (9, 6)),
        MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE),
        MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        MetadataResponseTopic(name=None, topic_id=ID, error_code=ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_an_answer_that_leaves_something_open(partial: MetadataResponseTopic) -> None:
    assert not ClusterView([("b", 1)]).update(metadata(partial))


def test_one_topic_left_open_does_not_keep_the_others_from_being_read() -> None:
    view = ClusterView([("b", 1)])
    assert not view.update(metadata(topic((NO_LEADER, 1)), topic((2, 1), name="u", topic_id=OTHER_ID)))
    assert view.leader("u", 0) == Leader(2, 1)


def test_an_error_that_stays_leaves_nothing_to_wait_for() -> None:
    refused = MetadataResponseTopic(name="t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert ClusterView([("b", 1)]).update(metadata(refused))


def test_topics_missing_in_a_response() -> None:
    view = view_of(topic((1, 5)), topic((2, 1), name="u", topic_id=OTHER_ID))
    view.update(metadata(topic((1, 5))))
    assert view.partitions("u") == 1
    view.update(metadata(topic((1, 5))), all_topics=True)
    assert (view.partitions("u"), view.partitions(OTHER_ID)) == (0, 0)
    gone = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    view.update(metadata(gone))
    assert view.partitions("t") == 0


def test_metadata_is_requested_from_each_broker_in_turn() -> None:
    view = ClusterView([("b", 1), ("b", 2)])
    assert [view.next_node() for _ in range(3)] == [("b", 1), ("b", 2), ("b", 1)]
    view.update(metadata())
    assert {view.next_node() for _ in range(3)} == {("h1", 9092), ("h2", 9092), ("h3", 9092)}
    assert not view.update(MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert view.next_node()[0] == "b", "KIP-1102: back to where one began"


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.NONE, Reaction.NONE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Reaction.REFRESH),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.REFRESH),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Reaction.RETRY),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Reaction.RETRY),
        (ErrorCode.NOT_COORDINATOR, Reaction.FIND_COORDINATOR),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Reaction.FAIL),
        (9999, Reaction.FAIL),
    ],
)
def test_reactions(code: int, reaction: Reaction) -> None:
    assert reaction_to(code) is reaction
