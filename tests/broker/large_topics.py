"""Topics that are in the image of a broker only: to create the logs of many partitions takes a minute."""

from __future__ import annotations

from penstock.metadata.image import PartitionImage, TopicImage
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import PartitionRecord

__all__ = ["topic_image"]


def topic_image(name: str, partitions: int, id: bytes = b"t") -> TopicImage:
    topic = TopicImage(name, TopicId(id.rjust(16, b"\0")))
    record = PartitionRecord(replicas=[0], isr=[0], leader=0)
    topic.partitions = {index: PartitionImage(record) for index in range(partitions)}
    return topic
