"""Idempotent producers, by the wire protocol."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from penstock.wire.apis.produce import PRODUCE, PartitionProduceResponse
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    new_producer_id,
    produce,
    read_all,
)

LAST_SEQUENCE = 0x7FFFFFFF


class Producer:
    """Sends batches of single records, with any sequence and epoch."""

    def __init__(self, client: RawClient, topic: Topic, producer_id: int | None = None) -> None:
        self._client = client
        self._topic = topic
        self.id = new_producer_id(client) if producer_id is None else producer_id

    def batch(self, sequence: int, epoch: int = 0, count: int = 1) -> bytes:
        values = [b"%d" % ((sequence + i) & LAST_SEQUENCE) for i in range(count)]
        return batch_of(values, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)

    def send(
        self, sequence: int, epoch: int = 0, count: int = 1, version: int = PRODUCE.max_version
    ) -> PartitionProduceResponse:
        return produce(self._client, self._topic, self.batch(sequence, epoch, count), version=version)

    def offset(self, sequence: int, epoch: int = 0, count: int = 1) -> int:
        answer = self.send(sequence, epoch, count)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return answer.base_offset


def values(client: RawClient, topic: Topic) -> list[bytes | None]:
    return [r.value for r in read_all(client, topic)]


def describe(client: RawClient, name: str, *indexes: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(indexes))])
    (topic,) = client.call(DESCRIBE_PRODUCERS, 0, request).topics
    assert topic.name == name
    return topic.partitions


def producers(client: RawClient, topic: Topic) -> list[ProducerState]:
    (partition,) = describe(client, topic.name, 0)
    assert partition.error_code == ErrorCode.NONE
    return partition.active_producers
