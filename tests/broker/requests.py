"""Requests as tests think of them: a topic, some records, one partition's answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from time import sleep, time_ns
from typing import Any, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.records.codecs import Codec
from penstock.records.record import Header, Record, build_batch, iter_batches, iter_records
from penstock.wire.api import Api
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.raw import RawClient

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
PRODUCE_BY_ID = FETCH_BY_ID = 13
_numbers = count()
#: the address of another broker than ours, see `conftest`
AGAINST = os.environ.get("PENSTOCK_TEST_AGAINST")


class Topic(NamedTuple):
    name: str
    id: TopicId


def every_version(api: Api[Any, Any]) -> range:
    return range(api.min_supported, api.max_version + 1)


def edge_versions(api: Api[Any, Any]) -> list[int]:
    """The lowest and the highest version, and those on both sides of the change to the flexible encoding."""
    edges = {api.min_supported, api.flexible_from - 1, api.flexible_from, api.max_version}
    return sorted(version for version in edges if api.supports(version))


def new_name(prefix: str = "topic") -> str:
    return f"{prefix}-{time_ns()}-{next(_numbers)}"


def now_ms() -> int:
    return time_ns() // 1_000_000


def until(condition: Callable[[], bool]) -> None:
    """Return when the broker has brought about what a chore of its does sooner or later."""
    while not condition():
        # It needs the processor for that, and so do its processes.
        sleep(0.005)


# -- topics


def request_topic(
    client: RawClient,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    version: int = CREATE_TOPICS.max_version,
    replication_factor: int = 1,
    validate_only: bool = False,
) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
    return client.call(CREATE_TOPICS, version, request).topics[0]


def create_topic(
    client: RawClient, name: str = "", partitions: int = 1, configs: Mapping[str, str] | None = None
) -> Topic:
    result = request_topic(client, name or new_name(), partitions, configs)
    assert result.error_code == ErrorCode.NONE, result.error_message
    topic = Topic(result.name, TopicId(result.topic_id))
    # Apache Kafka answers before its brokers know the topic.
    while any(fetch(client, topic, 0, partition=p).error_code for p in range(result.num_partitions)):
        pass
    return topic


def delete_topic(client: RawClient, topic: Topic) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
    (result,) = client.call(DELETE_TOPICS, 6, request).responses
    assert result.error_code == ErrorCode.NONE, result.error_message


def describe_topic(client: RawClient, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = client.call(METADATA, 12, request).topics
    return topic


def topic_exists(client: RawClient, name: str) -> bool:
    """As far as this broker has heard: Apache Kafka's brokers hear of changes a moment after the answer."""
    if AGAINST:
        sleep(0.1)  # against Apache Kafka only
    return describe_topic(client, name).error_code == ErrorCode.NONE


def delete_before(
    client: RawClient,
    topic: Topic,
    offset: int,
    *,
    partition: int = 0,
    version: int = DELETE_RECORDS.max_version,
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[wanted])], timeout_ms=5000
    )
    ((answer,),) = [t.partitions for t in client.call(DELETE_RECORDS, version, request).topics]
    return answer


# -- writing


def record(
    value: bytes | None,
    key: bytes | None = None,
    timestamp: int | None = None,
    headers: tuple[Header, ...] = (),
) -> Record:
    return Record(0, now_ms() if timestamp is None else timestamp, key, value, headers)


def batch_of(records: Iterable[Record | bytes], codec: Codec = Codec.NONE, **header: Any) -> bytes:
    """A batch as a producer sends it; plain bytes are values."""
    made = [record(item) if isinstance(item, bytes) else item for item in records]
    return build_batch(
        [item._replace(offset=offset) for offset, item in enumerate(made)], codec=codec, **header
    )


def produce_request(
    topic: Topic, batch: bytes | None, *, partition: int = 0, acks: int = -1, version: int
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=None if batch is None else memoryview(batch))
    by_id = version >= PRODUCE_BY_ID
    named = TopicProduceData(topic_id=topic.id) if by_id else TopicProduceData(name=topic.name)
    named.partition_data = [data]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[named])


def produce(
    client: RawClient,
    topic: Topic,
    batch: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = PRODUCE.max_version,
) -> PartitionProduceResponse:
    request = produce_request(topic, batch, partition=partition, acks=acks, version=version)
    return only_partition(client.call(PRODUCE, version, request))


def only_partition(response: ProduceResponse) -> PartitionProduceResponse:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def append(client: RawClient, topic: Topic, *values: bytes, partition: int = 0) -> int:
    """Append one batch of values, successfully; its base offset."""
    answer = produce(client, topic, batch_of(values), partition=partition)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer.base_offset


def new_producer_id(client: RawClient) -> int:
    answer = client.call(INIT_PRODUCER_ID, 5, InitProducerIdRequest(transaction_timeout_ms=1000))
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id


# -- reading


def wanted(offset: int, partition: int = 0, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)


def fetch_request(
    topics: Sequence[tuple[Topic, Sequence[FetchPartition]]],
    *,
    version: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    by_id = version >= FETCH_BY_ID
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(topic_id=topic.id, partitions=list(partitions))
            if by_id
            else FetchTopic(topic=topic.name, partitions=list(partitions))
            for topic, partitions in topics
        ],
    )


def fetch(
    client: RawClient,
    topic: Topic,
    offset: int,
    *,
    partition: int = 0,
    version: int = FETCH.max_version,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **request: Any,
) -> PartitionData:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    response = client.call(FETCH, version, fetch_request([(topic, [wanted])], version=version, **request))
    assert response.error_code == ErrorCode.NONE
    ((answer,),) = [t.partitions for t in response.responses]
    return answer


def stored_batches(answer: PartitionData) -> list[bytes]:
    """The whole batches of an answer; one that is cut short at the end is left out, as clients do."""
    assert isinstance(answer.records, memoryview)
    data = bytes(answer.records)
    return [data[position : position + header.size] for position, header in iter_batches(data)]


def records_in(answer: PartitionData) -> list[Record]:
    return [item for batch in stored_batches(answer) for item in iter_records(batch)]


def values_in(answer: PartitionData) -> list[bytes | None]:
    return [item.value for item in records_in(answer)]


def read_all(client: RawClient, topic: Topic, offset: int = 0, partition: int = 0) -> list[Record]:
    """Every record from `offset` to the high watermark."""
    records: list[Record] = []
    while True:
        answer = fetch(client, topic, offset, partition=partition)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        found = [item for item in records_in(answer) if item.offset >= offset]
        if not found:
            return records
        records += found
        offset = found[-1].offset + 1


def list_offset(
    client: RawClient,
    topic: Topic,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = LIST_OFFSETS.max_version,
    committed: bool = False,
    current_leader_epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=current_leader_epoch
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic.name, partitions=[wanted])],
        timeout_ms=10_000,
    )
    ((answer,),) = [t.partitions for t in client.call(LIST_OFFSETS, version, request).topics]
    return answer
