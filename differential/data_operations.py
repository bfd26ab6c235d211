"""Random operations on records: Produce, Fetch, ListOffsets, DeleteRecords, idempotent producers."""

from __future__ import annotations

from differential.model import START_MS, Model, Session, Topic
from differential.operations import Operation
from penstock.records.codecs import Codec
from penstock.records.record import Header, Record, build_batch
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    TopicRequest,
)
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

__all__ = [
    "delete_records",
    "describe_producers",
    "end_offsets",
    "fetch",
    "fetch_session",
    "init_producer",
    "list_offsets",
    "produce",
    "produce_idempotent",
]

#: zstd came with this version of Produce
_ZSTD_FROM = 7


def produce(model: Model) -> Operation:
    version = model.version(PRODUCE)
    topics = [
        TopicProduceData(
            name=topic.name,
            topic_id=topic.id,
            partition_data=[
                PartitionProduceData(index=index, records=_batch(model, topic, version))
                for index in model.some_partitions(topic)
            ],
        )
        for topic in model.some_topics()
    ]
    acks = model.pick(1, 1, -1, -1, 0, 2)
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)
    return Operation("produce", PRODUCE, version, request, answered=acks != 0)


def produce_idempotent(model: Model) -> Operation:
    """A batch of an idempotent producer, mostly with the next sequence."""
    if not model.producers:
        return init_producer(model)
    producer, topic = model.pick(*model.producers), model.topic()
    version, index = model.version(PRODUCE), model.partition(topic)
    sequence = producer.sequences.get((topic.name, index), 0)
    records = _records(model)
    if model.chance(0.75):
        producer.sequences[topic.name, index] = sequence + len(records)
        topic.records += len(records)
    else:
        sequence = max(0, sequence + model.pick(-len(records), -1, 1, 5))
    epoch = producer.epoch if model.chance(0.93) else producer.epoch + model.pick(-1, 1)
    batch = build_batch(records, producer_id=producer.id, producer_epoch=epoch, base_sequence=sequence)
    data = PartitionProduceData(index=index, records=memoryview(batch))
    request = ProduceRequest(
        acks=model.pick(-1, -1, -1, 1),
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
    )
    return Operation("idempotence", PRODUCE, version, request)


def init_producer(model: Model) -> Operation:
    version = model.version(INIT_PRODUCER_ID)
    request = InitProducerIdRequest(transaction_timeout_ms=model.pick(60_000, 0, -1))
    if model.producers and model.chance(0.3):
        known = model.pick(*model.producers)
        request.producer_id, request.producer_epoch = known.id, known.epoch
    return Operation("idempotence", INIT_PRODUCER_ID, version, request, binds=model.new_producer().id)


def describe_producers(model: Model) -> Operation:
    topics = [
        TopicRequest(name=topic.name, partition_indexes=model.some_partitions(topic))
        for topic in model.some_topics()
    ]
    return Operation(
        "idempotence",
        DESCRIBE_PRODUCERS,
        model.version(DESCRIBE_PRODUCERS),
        DescribeProducersRequest(topics=topics),
        is_read=True,
    )


def fetch(model: Model) -> Operation:
    """A fetch without a session."""
    version = model.version(FETCH)
    request = _fetch_request(model, model.some_topics())
    request.session_epoch = -1
    return Operation("fetch", FETCH, version, request, is_read=True)


def fetch_session(model: Model) -> Operation:
    """The first or a later request of a fetch session."""
    version = max(7, model.version(FETCH))
    request = _fetch_request(model, model.some_topics())
    if not model.sessions or model.chance(0.25):
        session = model.new_session()
        request.session_epoch = 0
        return Operation("fetch", FETCH, version, request, binds=session.id)
    session = model.pick(*model.sessions[-3:])
    request.session_id, request.session_epoch = session.id, _epoch(model, session)
    if model.chance(0.5):
        request.topics = []
    if model.chance(0.2):
        topic = model.topic()
        request.forgotten_topics_data = [
            ForgottenTopic(
                topic=topic.name,
                topic_id=topic.id,
                partitions=model.some_partitions(topic),
            )
        ]
    return Operation("fetch", FETCH, version, request)


def list_offsets(model: Model) -> Operation:
    version = model.version(LIST_OFFSETS)
    times = (-1, -1, -2, -3, -4, -5, -6, 0, START_MS, model.time_ms(), START_MS + 5000)
    topics = [
        ListOffsetsTopic(
            name=topic.name,
            partitions=[
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=model.pick(-1, -1, -1, 0, 5),
                    timestamp=model.pick(*times),
                )
                for index in model.some_partitions(topic)
            ],
        )
        for topic in model.some_topics()
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=model.pick(0, 1), topics=topics, timeout_ms=5000
    )
    return Operation("offsets", LIST_OFFSETS, version, request, is_read=True)


def end_offsets(model: Model) -> Operation:
    version = model.version(OFFSET_FOR_LEADER_EPOCH)
    topics = [
        OffsetForLeaderTopic(
            topic=topic.name,
            partitions=[
                OffsetForLeaderPartition(
                    partition=index,
                    current_leader_epoch=model.pick(-1, -1, 0, 3),
                    leader_epoch=model.pick(0, 0, 1, -1, 9),
                )
                for index in model.some_partitions(topic)
            ],
        )
        for topic in model.some_topics()
    ]
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
    return Operation("offsets", OFFSET_FOR_LEADER_EPOCH, version, request, is_read=True)


def delete_records(model: Model) -> Operation:
    topics = [
        DeleteRecordsTopic(
            name=topic.name,
            partitions=[
                DeleteRecordsPartition(partition_index=index, offset=model.number(topic.records // 3))
                for index in model.some_partitions(topic)
            ],
        )
        for topic in model.some_topics()
    ]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
    return Operation("records", DELETE_RECORDS, model.version(DELETE_RECORDS), request)


def _epoch(model: Model, session: Session) -> int:
    if model.chance(0.85):
        epoch = session.epoch
        session.epoch += 1
        return epoch
    return session.epoch + model.pick(-1, 1, 7)


def _fetch_request(model: Model, topics: list[Topic]) -> FetchRequest:
    limits = (0, 1, 100, 300, 1000, 1 << 20, 1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=model.pick(0, 1, 1),
        max_bytes=model.pick(*limits, 2**31 - 1),
        isolation_level=model.pick(0, 0, 1),
        topics=[
            FetchTopic(
                topic=topic.name,
                topic_id=topic.id,
                partitions=[
                    FetchPartition(
                        partition=index,
                        current_leader_epoch=model.pick(-1, -1, -1, 0, 4),
                        fetch_offset=model.offset(topic),
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=model.pick(*limits),
                    )
                    for index in model.some_partitions(topic)
                ],
            )
            for topic in topics
        ],
    )


def _batch(model: Model, topic: Topic, version: int) -> memoryview:
    records = _records(model)
    codec = Codec.NONE if model.chance(0.5) else model.pick(*Codec)
    if codec is Codec.ZSTD and version < _ZSTD_FROM and model.chance(0.7):
        codec = Codec.GZIP
    topic.records += len(records)
    batch = bytearray(build_batch(records, codec=codec))
    if model.chance(0.03):
        batch[model.random.randrange(17, 61)] ^= 1 << model.random.randrange(8)
    return memoryview(bytes(batch))


def _records(model: Model) -> list[Record]:
    return [
        Record(
            offset,
            model.time_ms(),
            None if model.chance(0.2) else b"key-%d" % model.random.randrange(4),
            None if model.chance(0.1) else model.random.randbytes(model.pick(0, 1, 20, 300)),
            _headers(model),
        )
        for offset in range(model.pick(1, 1, 2, 5))
    ]


def _headers(model: Model) -> tuple[Header, ...]:
    if model.chance(0.8):
        return ()
    return (("h", None if model.chance(0.3) else b"v"),)
