"""Portions of large messages: which objects go with which portion."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import pytest

from penstock.wire.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from penstock.wire.portions import PORTION, portions
from penstock.wire.schema import Struct


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _metadata(topics: int, partitions: int) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=f"t-{i}",
                partitions=[MetadataResponsePartition(partition_index=j) for j in range(partitions)],
            )
            for i in range(topics)
        ]
    )


def _alive() -> int:
    """The number of structures of responses."""
    return sum(
        isinstance(each, MetadataResponseTopic | MetadataResponsePartition) for each in gc.get_objects()
    )


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, 30_000), (30_000, 0), (3000, 10), (10, 3000), (1, 1), (0, 0)]
)
def test_each_portion_frees_few_objects(topics: int, partitions: int) -> None:
    before = _alive()
    message = _metadata(topics, partitions)
    found = [*portions(message)]
    number = topics * (1 + partitions)
    assert _alive() - before == number
    del message
    assert _alive() - before == number, "the portions have all structures"
    found.reverse()
    left = number
    while found:
        found.pop()
        now = _alive() - before
        assert 0 <= left - now <= PORTION + 64 * 11
        left = now
    assert left == 0


def test_empty_lists_are_looked_at_in_portions() -> None:
    """The lists of 250,000 topics without partitions were all looked at in one step, which took 100 ms."""
    found = [*portions(_metadata(30_000, 0))]
    assert max(map(len, found)) <= PORTION
    assert len(found) >= 2 * 30_000 // PORTION


def test_a_message_that_was_not_decoded_to_its_end_lacks_fields() -> None:
    message = object.__new__(MetadataResponse)
    message.topics = _metadata(5000, 0).topics
    assert sum(map(len, portions(message))) == 5000


def test_values_go_with_their_portion() -> None:
    indexes = list(range(1000, 101_000))
    message = ConsumerGroupHeartbeatResponse(
        assignment=Assignment(topic_partitions=[TopicPartitions(topic_id=bytes(16), partitions=indexes)])
    )
    found = [*portions(message)]
    assert sum(found[1:], found[0][-(len(found[0]) - 2) :]) == indexes
    assert max(map(len, found)) <= PORTION + 2


def test_objects_that_something_else_refers_to_stay() -> None:
    message = _metadata(10, 1000)
    kept = message.topics
    found = [*portions(message)]
    del message
    found.clear()
    assert kept == _metadata(10, 1000).topics


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_lists_of_any_kind(kind: type) -> None:
    class Many(Struct):
        pass

    message = MetadataResponse()
    message.topics = kind(_metadata(5000, 0).topics)
    found = [*portions(message)]
    assert sum(map(len, found)) == 5000
