"""Random operations of transactions: producers of both protocols, their offsets, and their description.

A transactional id keeps to one protocol (`transaction.version` 1 or 2), as a client does. Transactions do not
time out during a run.
"""

from __future__ import annotations

from typing import Any

from differential.model import START_MS, Model, TransactionalProducer
from differential.operations import Operation
from penstock.records.record import Record, build_batch
from penstock.wire.api import Api
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.end_txn import END_TXN, EndTxnRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

__all__ = ["describe_transactions", "list_transactions", "transaction_step"]

_KIND = "transactions"
_TIMEOUT_MS = 600_000
#: the last versions of transaction.version 1
_LAST_OLD = {PRODUCE.key: 11, END_TXN.key: 4, TXN_OFFSET_COMMIT.key: 4, ADD_PARTITIONS_TO_TXN.key: 3}


def transaction_step(model: Model) -> Operation:
    """The next step of a transactional producer."""
    producer = model.pick(*model.transactional)
    if not producer.is_initialized or model.chance(0.05):
        return _init(model, producer)
    steps = [_produce, _produce, _produce, _commit_offsets, _end, _end]
    if not producer.is_new_protocol:
        steps += [_add_partitions, _add_partitions, _add_offsets]
    return model.pick(*steps)(model, producer)


def _version(model: Model, api: Api[Any, Any], producer: TransactionalProducer) -> int:
    """A version of the producer's protocol."""
    version, last_old = model.version(api), _LAST_OLD[api.key]
    return max(version, last_old + 1) if producer.is_new_protocol else min(version, last_old)


def _id(model: Model, producer: TransactionalProducer) -> str:
    return producer.name if model.chance(0.97) else model.pick("", "~txn-unknown")


def _producer_id(model: Model, producer: TransactionalProducer) -> int:
    return producer.id if model.chance(0.97) else model.pick(-1, 7)


def _epoch(model: Model, producer: TransactionalProducer) -> int:
    return producer.epoch if model.chance(0.95) else model.pick(0, 1, -1, 1000)


def _init(model: Model, producer: TransactionalProducer) -> Operation:
    producer.is_initialized = True
    producer.sequences.clear()
    version = model.version(INIT_PRODUCER_ID)
    timeout_ms = _TIMEOUT_MS if model.chance(0.93) else model.pick(0, -1, 3_600_000)
    request = InitProducerIdRequest(transactional_id=_id(model, producer), transaction_timeout_ms=timeout_ms)
    if model.chance(0.2):
        request.producer_id, request.producer_epoch = producer.id, _epoch(model, producer)
    return Operation(_KIND, INIT_PRODUCER_ID, version, request, binds=producer.id, binds_epoch=producer.epoch)


def _add_partitions(model: Model, producer: TransactionalProducer) -> Operation:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=_id(model, producer),
        v3_and_below_producer_id=_producer_id(model, producer),
        v3_and_below_producer_epoch=_epoch(model, producer),
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic.name, partitions=model.some_partitions(topic))
            for topic in model.some_topics()
        ],
    )
    return Operation(_KIND, ADD_PARTITIONS_TO_TXN, _version(model, ADD_PARTITIONS_TO_TXN, producer), request)


def _add_offsets(model: Model, producer: TransactionalProducer) -> Operation:
    request = AddOffsetsToTxnRequest(
        transactional_id=_id(model, producer),
        producer_id=_producer_id(model, producer),
        producer_epoch=_epoch(model, producer),
        group_id=model.pick(*model.classic_groups).name,
    )
    return Operation(_KIND, ADD_OFFSETS_TO_TXN, model.version(ADD_OFFSETS_TO_TXN), request)


def _produce(model: Model, producer: TransactionalProducer) -> Operation:
    topic = model.topic()
    index = model.partition(topic)
    place = topic.name, index
    sequence = producer.sequences.get(place, 0)
    count = model.pick(1, 1, 2)
    records = [Record(i, START_MS + i, None, b"in a transaction") for i in range(count)]
    if model.chance(0.93):
        producer.sequences[place] = sequence + count
        topic.records += count
    else:
        sequence = max(0, sequence + model.pick(-count, 1, 5))
    batch = build_batch(
        records,
        producer_id=_producer_id(model, producer),
        producer_epoch=_epoch(model, producer),
        base_sequence=sequence,
        transactional=model.chance(0.97),
    )
    data = PartitionProduceData(index=index, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=_id(model, producer),
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
    )
    return Operation(_KIND, PRODUCE, _version(model, PRODUCE, producer), request)


def _commit_offsets(model: Model, producer: TransactionalProducer) -> Operation:
    is_member = model.chance(0.1)
    request = TxnOffsetCommitRequest(
        transactional_id=_id(model, producer),
        group_id=model.pick(*model.classic_groups).name,
        producer_id=_producer_id(model, producer),
        producer_epoch=_epoch(model, producer),
        generation_id=7 if is_member else -1,
        member_id="~nobody" if is_member else "",
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=model.number(50), committed_metadata="note"
                    )
                    for index in model.some_partitions(topic)
                ],
            )
            for topic in model.some_topics()
        ],
    )
    return Operation(_KIND, TXN_OFFSET_COMMIT, _version(model, TXN_OFFSET_COMMIT, producer), request)


def _end(model: Model, producer: TransactionalProducer) -> Operation:
    request = EndTxnRequest(
        transactional_id=_id(model, producer),
        producer_id=_producer_id(model, producer),
        producer_epoch=_epoch(model, producer),
        committed=model.chance(0.6),
    )
    if producer.is_new_protocol:
        producer.sequences.clear()
    version = _version(model, END_TXN, producer)
    return Operation(_KIND, END_TXN, version, request, binds_epoch=producer.epoch)


def describe_transactions(model: Model) -> Operation:
    names = [producer.name for producer in model.transactional]
    chosen = model.pick(names, names[:1], ["~txn-unknown"], [""])
    request = DescribeTransactionsRequest(transactional_ids=chosen)
    return Operation(_KIND, DESCRIBE_TRANSACTIONS, 0, request, is_read=True)


def list_transactions(model: Model) -> Operation:
    request = ListTransactionsRequest(
        state_filters=model.pick([], [], ["Ongoing"], ["CompleteCommit", "nothing"]),
        producer_id_filters=model.pick([], [], [model.transactional[0].id]),
        duration_filter=model.pick(-1, -1, 0, 3_600_000),
        transactional_id_pattern=model.pick(None, None, "", ".*txn-1", "("),
    )
    return Operation(_KIND, LIST_TRANSACTIONS, model.version(LIST_TRANSACTIONS), request, is_read=True)
