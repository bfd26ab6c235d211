"""Applies one batch of the metadata log to an image that is read meanwhile.

A batch is one change of the metadata, with up to 10,000 new partitions. It is applied in slices, and requests
read the image between them. New topics and new partitions are kept aside and become visible together: no
request sees a topic with some of its partitions. Records of other types are visible at once. The controller
decides nothing before the whole batch is applied.
"""

from __future__ import annotations

from penstock.metadata.image import NO_TIME, ClusterImage, PartitionImage, TopicImage, topic_of
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from penstock.wire.schema import Struct

__all__ = ["BatchApplication"]


class BatchApplication:
    """Applies the records of one batch in order; `publish` ends it.

    Invariant: `image.offset` does not reach the offset of a record that is kept aside. Caches by that offset
    are renewed once the record is visible.
    """

    __slots__ = ("_image", "_offset", "_partitions", "_times", "_topics")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._offset = image.offset
        self._topics: list[TopicImage] = []
        #: new partitions by topic
        self._partitions: dict[TopicId, dict[int, PartitionImage]] = {}
        #: the times of the last change of topics that get new partitions
        self._times: dict[TopicId, int] = {}

    def apply(self, record: Struct, offset: int) -> None:
        image = self._image
        if isinstance(record, PartitionRecord):
            partition = PartitionImage(record)
            self._partitions.setdefault(partition.topic_id, {})[partition.index] = partition
            if record.changed_ms != NO_TIME:
                self._times[partition.topic_id] = record.changed_ms
            # Only decisions read these indexes.
            image.index(partition)
        elif isinstance(record, TopicRecord):
            self._topics.append(topic_of(record))
        else:
            if not isinstance(record, ConfigRecord):
                # Any other record may name a new topic or partition.
                self.publish()
            image.apply(record, offset)
        self._offset = offset

    def publish(self) -> None:
        """Make new topics and partitions visible."""
        image = self._image
        for topic in self._topics:
            topic.partitions = self._partitions.pop(topic.id, {})
            image.add_topic(topic)
        for topic_id, partitions in self._partitions.items():
            known = image.topics_by_id[topic_id]
            known.partitions.update(partitions)
            known.changed_ms = self._times.get(topic_id, known.changed_ms)
        self._topics.clear()
        self._partitions.clear()
        self._times.clear()
        image.offset = self._offset
