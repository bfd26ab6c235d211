"""A replicated topic on a cluster of real nodes in one loop, and requests to its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import PartitionImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.records.record import iter_batches, iter_records
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.nodes import Cluster, eventually
from tests.broker.requests import batch_of

TOPIC = "replicated"


async def make_topic(
    nodes: Cluster,
    *replicas: int,
    name: str = TOPIC,
    configs: Mapping[str, str] | None = None,
    min_isr: int | None = 2,
    partitions: int = 1,
) -> None:
    """A partition on the brokers `replicas`, the first of which leads; returns when all brokers know it.

    With `min_isr` None it has the one of all brokers.
    """
    settings = dict(configs or {})
    if min_isr is not None:
        settings.setdefault("min.insync.replicas", str(min_isr))
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index in range(partitions)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    (result,) = (await nodes.call(replicas[0], CREATE_TOPICS, request)).topics
    assert result.error_code == ErrorCode.NONE, result.error_message
    topic_id = TopicId(result.topic_id)

    def is_known(node: int) -> bool:
        if node not in replicas:
            return nodes[node].stages.storage.partitions.knows(topic_id)
        return all(hosts(nodes[node], name, index) for index in range(partitions))

    await eventually(lambda: all(map(is_known, nodes.brokers)))


def hosts(broker: Broker, name: str = TOPIC, index: int = 0) -> bool:
    return isinstance(broker.stages.storage.partitions.find(name, index), Partition)


def replica(broker: Broker, name: str = TOPIC, index: int = 0) -> Partition:
    found = broker.stages.storage.partitions.find(name, index)
    assert isinstance(found, Partition)
    return found


async def led_by(nodes: Cluster, node: int, name: str = TOPIC) -> None:
    """Return when a broker leads the partition.

    The controller and other brokers may know of an election before the elected broker does.
    """

    def leads() -> bool:
        found = nodes[node].stages.storage.partitions.find(name, 0)
        return isinstance(found, Partition) and found.leading

    await eventually(leads)


def described(broker: Broker, name: str = TOPIC) -> PartitionImage:
    """The partition as this broker's metadata has it."""
    return broker.stages.cluster.image.topics[name].partitions[0]


async def stop_fetching(broker: Broker) -> None:
    """Have a broker fetch nothing more from those it follows now."""
    for fetcher in broker.stages.replication.replicas.fetchers:
        await fetcher.stop()


async def produce(
    nodes: Cluster,
    node: int,
    *values: bytes,
    acks: int = -1,
    timeout_ms: int = 60_000,
    name: str = TOPIC,
    **header: Any,
) -> PartitionProduceResponse:
    topic_id = nodes[node].stages.cluster.image.topics[name].id
    data = PartitionProduceData(index=0, records=memoryview(batch_of(values, **header)))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(topic_id=topic_id, name=name, partition_data=[data])],
    )
    ((answer,),) = [t.partition_responses for t in (await nodes.call(node, PRODUCE, request)).responses]
    return answer


async def fetch(
    nodes: Cluster, node: int, offset: int = 0, *, name: str = TOPIC, max_wait_ms: int = 0, rack: str = ""
) -> PartitionData:
    """As a consumer."""
    topic_id: TopicId = nodes[node].stages.cluster.image.topics[name].id
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=topic_id, topic=name, partitions=[wanted])],
        rack_id=rack,
    )
    ((answer,),) = [t.partitions for t in (await nodes.call(node, FETCH, request)).responses]
    return answer


async def latest(nodes: Cluster, node: int, name: str = TOPIC) -> int | ErrorCode:
    """The end that ListOffsets names, or why it does not."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
    ((answer,),) = [t.partitions for t in (await nodes.call(node, LIST_OFFSETS, request)).topics]
    return ErrorCode(answer.error_code) if answer.error_code else answer.offset


def values_of(answer: PartitionData) -> list[bytes]:
    assert isinstance(answer.records, memoryview)
    data = bytes(answer.records)
    return [
        record.value or b""
        for position, header in iter_batches(data)
        for record in iter_records(memoryview(data)[position : position + header.size])
    ]


def stored(partition: Partition) -> bytes:
    """Everything in a replica's log."""
    log, parts, offset = partition.log, [], partition.log.log_start_offset
    while offset < log.end_offset:
        found = log.read(offset, 1 << 20, upper=log.end_offset)
        assert found is not None
        data = found.read()
        parts.append(data)
        for _, header in iter_batches(data):
            offset = header.next_offset
    return b"".join(parts)
