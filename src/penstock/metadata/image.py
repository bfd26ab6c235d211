"""The cluster image: what replaying the metadata log adds up to.

Changed by `apply` alone, one record at a time, in log order. `offset` is the last record applied, and the
registration of a broker is its broker epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.model.ids import TopicId
from penstock.wire.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

__all__ = ["BROKER", "TOPIC", "BrokerImage", "ClusterImage", "PartitionImage", "TopicImage", "unified_name"]

#: resource types that have configs, as the protocol numbers them
TOPIC: Final = 2
BROKER: Final = 4

_NO_CHANGE: Final = -2
_NO_LEADER: Final = -1


def unified_name(name: str) -> str:
    """What metrics make of a topic's name; two topics may not share it."""
    return name.replace(".", "_")


class PartitionImage:
    """Where one partition lives. `leader` is -1 while nobody leads it."""

    __slots__ = (
        "directories",
        "isr",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "replicas",
    )

    def __init__(self, record: PartitionRecord) -> None:
        self.replicas = record.replicas
        self.isr = record.isr
        self.leader = record.leader
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        self.directories = record.directories

    def change(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None:
            self.isr = record.isr
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.directories is not None:
            self.directories = record.directories
        if record.leader != _NO_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        self.partition_epoch += 1


class TopicImage:
    """A topic and its partitions, by index."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: TopicId) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, PartitionImage] = {}


class BrokerImage:
    """A registered broker; `endpoints` maps a listener's name to (host, port)."""

    __slots__ = ("endpoints", "epoch", "fenced", "id", "incarnation", "log_directories", "rack")

    def __init__(self, record: RegisterBrokerRecord) -> None:
        self.id = record.broker_id
        self.incarnation = record.incarnation_id
        self.epoch = record.broker_epoch
        self.rack = record.rack
        self.fenced = record.fenced
        self.endpoints = {e.name: (e.host, e.port) for e in record.end_points}
        self.log_directories = list(record.log_dirs)


class ClusterImage:
    """Topics, brokers, configs, features and the next producer id."""

    def __init__(self) -> None:
        self.offset = -1
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[TopicId, TopicImage] = {}
        #: topics by their `unified_name`
        self.unified_names: dict[str, str] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0

    def topic_configs(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC, name), {})

    def apply(self, record: object, offset: int) -> None:
        """Take in the record at `offset` of the metadata log."""
        _APPLY[type(record)](self, record)
        self.offset = offset

    def _topic(self, record: TopicRecord) -> None:
        topic = TopicImage(record.name, TopicId(record.topic_id))
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        self.unified_names[unified_name(topic.name)] = topic.name

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(TopicId(record.topic_id))
        del self.topics[topic.name]
        del self.unified_names[unified_name(topic.name)]
        self.configs.pop((TOPIC, topic.name), None)

    def _partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id[TopicId(record.topic_id)]
        topic.partitions[record.partition_id] = PartitionImage(record)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        self.topics_by_id[TopicId(record.topic_id)].partitions[record.partition_id].change(record)

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self.configs.setdefault(key, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[key]

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(record)

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker.fenced = record.fenced > 0

    def _no_op(self, record: NoOpRecord) -> None:
        """A record that only moves the log's end."""


_APPLY: Final[dict[type[object], Callable[[ClusterImage, Any], None]]] = {
    TopicRecord: ClusterImage._topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._partition,
    PartitionChangeRecord: ClusterImage._partition_change,
    ConfigRecord: ClusterImage._config,
    FeatureLevelRecord: ClusterImage._feature,
    ProducerIdsRecord: ClusterImage._producer_ids,
    RegisterBrokerRecord: ClusterImage._register,
    UnregisterBrokerRecord: ClusterImage._unregister,
    BrokerRegistrationChangeRecord: ClusterImage._registration_change,
    NoOpRecord: ClusterImage._no_op,
}
