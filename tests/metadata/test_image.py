"""The image: what records add up to."""

from __future__ import annotations

from penstock.metadata.image import BROKER, TOPIC, ClusterImage
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.schema import Struct

ID = TopicId(b"\x05" * 16)


def image_of(*records: Struct) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def partition() -> list[Struct]:
    made = PartitionRecord(
        partition_id=0, topic_id=ID, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0
    )
    return [TopicRecord(name="t", topic_id=ID), made]


def test_the_offset_is_that_of_the_last_record() -> None:
    assert ClusterImage().offset == -1
    assert image_of(NoOpRecord(), NoOpRecord()).offset == 1


def test_a_new_leader_starts_a_new_epoch_and_a_smaller_isr_does_not() -> None:
    shrunk = PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1])
    led = PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2)

    after_shrinking = image_of(*partition(), shrunk).topics["t"].partitions[0]
    after_election = image_of(*partition(), shrunk, led).topics["t"].partitions[0]

    assert (after_shrinking.isr, after_shrinking.leader_epoch, after_shrinking.partition_epoch) == ([1], 0, 1)
    assert (after_election.leader, after_election.leader_epoch, after_election.partition_epoch) == (2, 1, 2)
    assert after_election.replicas == [1, 2]


def test_a_config_without_a_value_is_unset() -> None:
    def config(name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=TOPIC, resource_name="t", name=name, value=value)

    image = image_of(config("a", "1"), config("b", "2"), config("a", None))
    assert image.topic_configs("t") == {"b": "2"}

    image.apply(config("b", None), 3)
    assert image.configs == {}
    assert (BROKER, "") not in image.configs


def test_a_broker_registers_is_fenced_unfenced_and_leaves() -> None:
    registered = RegisterBrokerRecord(
        broker_id=1,
        broker_epoch=7,
        rack="r",
        fenced=True,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9)],
    )
    image = image_of(registered)
    assert (image.brokers[1].fenced, image.brokers[1].endpoints) == (True, {"PLAINTEXT": ("h", 9)})

    seen = []
    # unfenced, unchanged, fenced
    for offset, fenced in enumerate((-1, 0, 1), start=1):
        image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=fenced), offset)
        seen.append(image.brokers[1].fenced)
    assert seen == [False, False, True]

    image.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=7), 4)
    assert image.brokers == {}


def test_features_and_producer_ids() -> None:
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
    )

    assert image.features == {"metadata.version": 30}
    assert image.next_producer_id == 2000
