"""Partitions in the requests of a share session, by topic."""

from __future__ import annotations

from penstock.client.queues.message import TopicIdPartition
from penstock.client.queues.session_topics import acknowledge_topics, fetch_topics, forgotten_topics
from penstock.wire.apis.share_acknowledge import AcknowledgementBatch

A, B = b"a" * 16, b"b" * 16
BATCH = AcknowledgementBatch(first_offset=3, last_offset=5, acknowledge_types=[1])


def test_new_partitions_and_acknowledgements_are_sent_together() -> None:
    new, old = TopicIdPartition(B, 1), TopicIdPartition(A, 0)
    first, second = fetch_topics({new}, {old: [BATCH]})
    assert (first.topic_id, second.topic_id) == (A, B)
    assert [(p.partition_index, p.acknowledgement_batches) for p in first.partitions] == [(0, [BATCH])]
    assert [(p.partition_index, p.acknowledgement_batches) for p in second.partitions] == [(1, [])]


def test_partitions_of_one_topic_are_in_their_order() -> None:
    places = [TopicIdPartition(A, index) for index in (2, 0, 1)]
    (topic,) = forgotten_topics(places)
    assert (topic.topic_id, topic.partitions) == (A, [0, 1, 2])
    (acknowledged,) = acknowledge_topics({place: [BATCH] for place in places})
    assert [p.partition_index for p in acknowledged.partitions] == [0, 1, 2]
