"""A batch that is applied in slices: topics and their partitions become visible together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.batch_application import BatchApplication
from penstock.metadata.image import NO_LEADER, TOPIC, ClusterImage
from penstock.wire.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.wire.schema import Struct
from tests.metadata.replays import state

_ID = b"t" * 16


def _partition(index: int, changed_ms: int = -1) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=_ID,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        changed_ms=changed_ms,
    )


def _applied(image: ClusterImage, records: Sequence[Struct]) -> list[tuple[int, int | None]]:
    """Apply records as one batch; (offset of the image, number of partitions) after each of them."""
    application = BatchApplication(image)
    seen = []
    for offset, record in enumerate(records, image.offset + 1):
        application.apply(record, offset)
        topic = image.topics.get("t")
        seen.append((image.offset, None if topic is None else len(topic.partitions)))
    application.publish()
    return seen


def test_a_new_topic_is_visible_with_all_of_its_partitions() -> None:
    image = ClusterImage()
    config = ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.ms", value="1")
    records = [TopicRecord(name="t", topic_id=_ID), _partition(0), _partition(1), _partition(2), config]
    seen = _applied(image, records)
    assert [partitions for _, partitions in seen] == [None] * 5
    assert len(image.topics["t"].partitions) == 3
    assert image.topics_by_id[image.topics["t"].id] is image.topics["t"]
    assert len(image.partitions_on(1)) == image.preferred[1] == 3
    assert image.offset == 4

    grown = _applied(image, [_partition(3), _partition(4, changed_ms=7)])
    # Caches by the offset of the image must not miss what becomes visible later.
    assert grown == [(4, 3), (4, 3)]
    assert (image.offset, len(image.topics["t"].partitions), image.topics["t"].changed_ms) == (6, 5, 7)


def test_other_records_see_the_topics_before_them() -> None:
    image = ClusterImage()
    change = PartitionChangeRecord(topic_id=_ID, partition_id=1, leader=NO_LEADER)
    records = [
        TopicRecord(name="t", topic_id=_ID),
        _partition(0),
        _partition(1),
        change,
        RegisterBrokerRecord(broker_id=1),
    ]
    assert [partitions for _, partitions in _applied(image, records)] == [None, None, None, 2, 2]
    one_by_one = ClusterImage()
    for offset, record in enumerate(records):
        one_by_one.apply(record, offset)
    assert state(image) == state(one_by_one)
