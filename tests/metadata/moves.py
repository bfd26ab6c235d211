"""Carries out the moves that a rebalance decides."""

from __future__ import annotations

from penstock.metadata.image import ClusterImage
from penstock.metadata.rebalance import Move
from penstock.model.ids import TopicPartition
from penstock.wire.metadata_records import (
    PartitionChangeRecord,
)


def carry_out(image: ClusterImage, moves: list[Move]) -> None:
    for (topic, index), replicas in moves:
        known = image.topics[topic]
        image.apply(
            PartitionChangeRecord(
                topic_id=known.id, partition_id=index, replicas=replicas, isr=replicas, leader=replicas[0]
            ),
            image.offset + 1,
        )


def copies(image: ClusterImage) -> set[tuple[TopicPartition, int]]:
    return {
        (TopicPartition(topic.name, index), node)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        for node in partition.replicas
    }
