"""Partitions in the requests of a share session, by topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.client.queues.message import TopicIdPartition
from penstock.wire.apis.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from penstock.wire.apis.share_fetch import FetchPartition, FetchTopic, ForgottenTopic

__all__ = ["acknowledge_topics", "fetch_topics", "forgotten_topics"]

_Batches = Mapping[TopicIdPartition, list[AcknowledgementBatch]]


def fetch_topics(added: set[TopicIdPartition], batches: _Batches) -> list[FetchTopic]:
    """New partitions of the session, and those with acknowledgements."""
    return [
        FetchTopic(
            topic_id=topic_id,
            partitions=[
                FetchPartition(
                    partition_index=place.partition, acknowledgement_batches=batches.get(place, [])
                )
                for place in places
            ],
        )
        for topic_id, places in _by_topic(added | batches.keys())
    ]


def forgotten_topics(forgotten: Iterable[TopicIdPartition]) -> list[ForgottenTopic]:
    """Partitions that leave the session."""
    return [
        ForgottenTopic(topic_id=topic_id, partitions=[place.partition for place in places])
        for topic_id, places in _by_topic(forgotten)
    ]


def acknowledge_topics(batches: _Batches) -> list[AcknowledgeTopic]:
    return [
        AcknowledgeTopic(
            topic_id=topic_id,
            partitions=[
                AcknowledgePartition(partition_index=place.partition, acknowledgement_batches=batches[place])
                for place in places
            ],
        )
        for topic_id, places in _by_topic(batches)
    ]


def _by_topic(
    places: Iterable[TopicIdPartition],
) -> Iterator[tuple[bytes, list[TopicIdPartition]]]:
    topics: dict[bytes, list[TopicIdPartition]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic_id, []).append(place)
    yield from topics.items()
