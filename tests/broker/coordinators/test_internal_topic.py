"""The internal topic of a coordinator: partition of a key, leader, creation."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.coordination.partitioning import java_hash
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError, ErrorCode, TopicAlreadyExists
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import PartitionRecord, TopicRecord

NAME = "__state"
TOPIC_ID = TopicId(b"state".ljust(16))


def image_with_leaders(*leaders: int) -> ClusterImage:
    image = ClusterImage()
    image.apply(TopicRecord(name=NAME, topic_id=TOPIC_ID), 1)
    for index, leader in enumerate(leaders):
        record = PartitionRecord(
            partition_id=index, topic_id=TOPIC_ID, replicas=[leader], isr=[leader], leader=leader
        )
        image.apply(record, 2 + index)
    return image


def internal_topic(image: ClusterImage, error: ApiError | None = None) -> tuple[InternalTopic, list[str]]:
    created: list[str] = []

    async def create(topic: NewTopic) -> None:
        created.append(topic.name)
        if error is not None:
            raise error

    return InternalTopic(NAME, image, lambda: NewTopic(NAME, 3, 1), create), created


def test_a_topic_that_does_not_exist_holds_no_keys() -> None:
    topic, _ = internal_topic(ClusterImage())
    assert topic.partition_for("any") == -1


def test_keys_are_spread_by_their_hash() -> None:
    topic, _ = internal_topic(image_with_leaders(7, 8, 9))
    for key in ("a", "b", "group"):
        index = topic.partition_for(key)
        assert index == java_hash(key) % 3
        assert topic.leader_of(index) == 7 + index


@pytest.mark.parametrize("error", [None, TopicAlreadyExists("another broker was faster")])
def test_the_topic_is_created_unless_it_exists(error: ApiError | None) -> None:
    topic, created = internal_topic(ClusterImage(), error)
    asyncio.run(topic.ensure())
    assert created == [NAME]


def test_an_error_of_the_controller_is_raised() -> None:
    topic, _ = internal_topic(ClusterImage(), ApiError(ErrorCode.INVALID_REPLICATION_FACTOR))
    with pytest.raises(ApiError):
        asyncio.run(topic.ensure())
