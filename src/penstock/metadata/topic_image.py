"""One topic in the cluster image.

Changed by the records of `ClusterImage.apply` alone.
"""

from __future__ import annotations

from typing import Final

from penstock.metadata.partition_image import PartitionImage
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import TopicRecord

__all__ = ["NO_TIME", "TopicImage", "topic_of", "unified_name"]

#: a time that no record has
NO_TIME: Final = -1


def unified_name(name: str) -> str:
    """A topic's name in metrics; two topics must not share it."""
    return name.replace(".", "_")


class TopicImage:
    """A topic and its partitions, by index.

    `created_ms` and `changed_ms` are times of the wall clock of the controller that wrote the record; -1 if
    unknown. A change is one of the topic's configs or of the number of its partitions.
    """

    __slots__ = ("changed_ms", "created_ms", "id", "name", "partitions")

    def __init__(
        self, name: str, topic_id: TopicId, created_ms: int = NO_TIME, changed_ms: int = NO_TIME
    ) -> None:
        self.name = name
        self.id = topic_id
        self.created_ms = created_ms
        self.changed_ms = changed_ms
        self.partitions: dict[int, PartitionImage] = {}


def topic_of(record: TopicRecord) -> TopicImage:
    """A topic that has no partitions yet."""
    return TopicImage(record.name, TopicId(record.topic_id), record.created_ms, record.changed_ms)
