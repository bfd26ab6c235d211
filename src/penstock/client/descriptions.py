"""Clusters, topics and groups as `Admin` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from penstock.model.ids import TOPIC_CHANGED, TOPIC_CREATED, TopicPartition

__all__ = [
    "BrokerDescription",
    "ClusterMetadata",
    "Group",
    "GroupMember",
    "PartitionDescription",
    "Topic",
    "TopicDescription",
    "cluster_metadata",
    "group_description",
    "topic_description",
]

_NO_LEADER: Final = -1
#: ids as Kafka's own tools write them; librdkafka has the other alphabet
_URL_SAFE: Final = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it."""

    name: str
    partitions: int
    replicas: int


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker, and where clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The ids of the brokers that have a partition; `leader` is None while there is none."""

    id: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions, in order. Changes are those of configs and of the number of partitions."""

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    created: datetime | None
    changed: datetime | None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Brokers by id, the id of the active controller, and the partitions of all topics."""

    id: str
    controller: int | None
    brokers: dict[int, BrokerDescription]
    topics: dict[str, tuple[PartitionDescription, ...]]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member and what it reads."""

    id: str
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Group:
    """A group, its state in Kafka's words (`STABLE`, `EMPTY`...), and its members."""

    name: str
    state: str
    members: tuple[GroupMember, ...]


def cluster_metadata(cluster: Any, topics: Mapping[str, Any]) -> ClusterMetadata:
    """Of what librdkafka answers to DescribeCluster and Metadata."""
    return ClusterMetadata(
        cluster.cluster_id,
        None if cluster.controller is None else cluster.controller.id,
        {node.id: BrokerDescription(node.id, node.host, node.port, node.rack) for node in cluster.nodes},
        {
            name: tuple(
                PartitionDescription(
                    p.id, None if p.leader == _NO_LEADER else p.leader, tuple(p.replicas), tuple(p.isrs)
                )
                for _, p in sorted(topic.partitions.items())
            )
            for name, topic in sorted(topics.items())
        },
    )


def topic_description(topic: Any, configs: Mapping[str, Any]) -> TopicDescription:
    """Of what librdkafka answers to DescribeTopics and DescribeConfigs."""
    return TopicDescription(
        topic.name,
        str(topic.topic_id).translate(_URL_SAFE),
        tuple(
            PartitionDescription(
                p.id,
                None if p.leader is None else p.leader.id,
                tuple(node.id for node in p.replicas),
                tuple(node.id for node in p.isr),
            )
            for p in topic.partitions
        ),
        _time(configs, TOPIC_CREATED),
        _time(configs, TOPIC_CHANGED),
    )


def _time(configs: Mapping[str, Any], name: str) -> datetime | None:
    entry = configs.get(name)
    return None if entry is None else datetime.fromtimestamp(int(entry.value) / 1000, UTC)


def group_description(name: str, found: Any) -> Group:
    """Of what librdkafka answers to DescribeGroups."""
    return Group(name, found.state.name, tuple(_member(member) for member in found.members))


def _member(member: Any) -> GroupMember:
    assigned = member.assignment.topic_partitions if member.assignment else []
    return GroupMember(
        member.member_id,
        member.client_id,
        member.host,
        frozenset(TopicPartition(p.topic, p.partition) for p in assigned),
    )
