"""Changes: topics, configs, messages, committed offsets. Each is one request in the user's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.partitioners import murmur2
from penstock.console.kafka.cluster import Cluster, Refused, check
from penstock.console.kafka.reading import Layout
from penstock.records.record import Header, Record, build_batch
from penstock.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = [
    "BROKER",
    "TOPIC",
    "add_partitions",
    "alter_configs",
    "create_topic",
    "delete_records",
    "delete_topic",
    "describe_configs",
    "partition_of",
    "produce",
]

TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE = 0, 1


async def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, str],
    *,
    validate_only: bool = False,
) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_ms(cluster), validate_only=validate_only)
    response = await cluster.send(CREATE_TOPICS, request, changes=True)
    for result in response.topics:
        check(result.error_code, result.error_message, f"topic {name} is not created")


async def delete_topic(cluster: Cluster, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_ms(cluster)
    )
    response = await cluster.send(DELETE_TOPICS, request, changes=True)
    for result in response.responses:
        check(result.error_code, result.error_message, f"topic {name} is not deleted")


async def add_partitions(cluster: Cluster, name: str, total: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_ms(cluster))
    response = await cluster.send(CREATE_PARTITIONS, request, changes=True)
    for result in response.results:
        check(result.error_code, result.error_message, f"topic {name} keeps its partitions")


async def describe_configs(cluster: Cluster, kind: int, name: str) -> DescribeConfigsResult:
    """All configs of a topic or broker with their sources and documentation."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    if kind == BROKER and name:
        response = await cluster.send_to(int(name), DESCRIBE_CONFIGS, request)
    else:
        response = await cluster.send(DESCRIBE_CONFIGS, request)
    (result,) = response.results
    check(result.error_code, result.error_message, f"configs of {name or 'the cluster'}")
    return result


async def alter_configs(
    cluster: Cluster, kind: int, name: str, changed: Mapping[str, str | None], *, validate_only: bool
) -> None:
    """Set configs, and return those that are None to their defaults."""
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changed.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    if kind == BROKER and name:
        # The broker itself checks its dynamic configs.
        response = await cluster.send_to(int(name), INCREMENTAL_ALTER_CONFIGS, request)
    else:
        response = await cluster.send(INCREMENTAL_ALTER_CONFIGS, request, changes=True)
    for result in response.responses:
        check(result.error_code, result.error_message, f"configs of {name}")


async def delete_records(cluster: Cluster, layout: Layout, before: Mapping[int, int]) -> dict[int, int]:
    """Delete the records before an offset of each partition; the new first offsets."""
    by_leader: dict[int, list[DeleteRecordsPartition]] = {}
    for partition, offset in before.items():
        if partition not in layout.leaders:
            raise Refused("LEADER_NOT_AVAILABLE", f"{layout.topic}-{partition} has no leader: try again")
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        by_leader.setdefault(layout.leaders[partition], []).append(wanted)
    starts: dict[int, int] = {}
    for leader, partitions in by_leader.items():
        topic = DeleteRecordsTopic(name=layout.topic, partitions=partitions)
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=_ms(cluster))
        response = await cluster.send_to(leader, DELETE_RECORDS, request)
        for result in response.topics[0].partitions:
            check(result.error_code, None, f"records of {layout.topic}-{result.partition_index}")
            starts[result.partition_index] = result.low_watermark
    return starts


def partition_of(layout: Layout, key: bytes | None, chosen: int | None, turn: int) -> int:
    """The partition of a message: the chosen one, else by the hash of the key as Java's clients do."""
    if chosen is not None:
        if not 0 <= chosen < layout.partitions:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"{layout.topic} has no partition {chosen}")
        return chosen
    return (turn if key is None else murmur2(key)) % layout.partitions


async def produce(
    cluster: Cluster,
    layout: Layout,
    partition: int,
    now_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...],
) -> int:
    """The offset of a message that all in-sync replicas have."""
    if partition not in layout.leaders:
        raise Refused("LEADER_NOT_AVAILABLE", f"{layout.topic}-{partition} has no leader: try again")
    batch = build_batch([Record(0, now_ms, key, value, headers)])
    data = TopicProduceData(
        name=layout.topic,
        topic_id=layout.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))],
    )
    request = ProduceRequest(acks=-1, timeout_ms=_ms(cluster), topic_data=[data])
    response = await cluster.send_to(layout.leaders[partition], PRODUCE, request)
    (result,) = response.responses[0].partition_responses
    check(result.error_code, result.error_message, f"{layout.topic}-{partition}")
    return result.base_offset


def _ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)
