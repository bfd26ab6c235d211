"""Requests of a transactional producer."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from penstock.wire.apis.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from penstock.wire.apis.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    new_name,
    produce_request,
)


class Txn(NamedTuple):
    """A transactional id and its producer."""

    client: RawClient
    id: str
    producer_id: int
    epoch: int

    def add(self, topic: str, *indexes: int, version: int = 3, epoch: int | None = None) -> list[str]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes or (0,)))],
        )
        while True:
            response = self.client.call(ADD_PARTITIONS_TO_TXN, version, request)
            (found,) = response.results_by_topic_v3_and_below
            codes = [ErrorCode(p.partition_error_code).name for p in found.results_by_partition]
            if "CONCURRENT_TRANSACTIONS" not in codes:
                return codes

    def add_offsets(self, group: str, version: int = 3) -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode(self.client.call(ADD_OFFSETS_TO_TXN, version, request).error_code).name

    def produce(self, topic: Topic, value: bytes, sequence: int = 0, version: int = 13) -> str:
        batch = batch_of(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request(topic, batch, version=version)
        request.transactional_id = self.id
        response = self.client.call(PRODUCE, version, request)
        return ErrorCode(response.responses[0].partition_responses[0].error_code).name

    def end(self, committed: bool, version: int, epoch: int | None = None) -> EndTxnResponse:
        return self.client.call(
            END_TXN,
            version,
            EndTxnRequest(
                transactional_id=self.id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=committed,
            ),
        )

    def describe(self) -> DescribedTransaction:
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        (found,) = self.client.call(DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return found

    def commit_offset(self, group: str, topic: str, version: int, **fields: object) -> str:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.client.call(TXN_OFFSET_COMMIT, version, request)
        return ErrorCode(response.topics[0].partitions[0].error_code).name


def find(client: RawClient, key: str, key_type: int) -> int:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while True:
        (found,) = client.call(FIND_COORDINATOR, 6, request).coordinators
        if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return found.error_code


def init(client: RawClient, name: str = "", version: int = 5, **fields: object) -> tuple[str, Txn]:
    name = name or new_name("txn")
    assert find(client, name, 1) == ErrorCode.NONE
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    for field, value in fields.items():
        setattr(request, field, value)
    retried = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    response = client.call(INIT_PRODUCER_ID, version, request)
    while response.error_code in retried:
        response = client.call(INIT_PRODUCER_ID, version, request)
    error = ErrorCode(response.error_code).name
    return error, Txn(client, name, response.producer_id, response.producer_epoch)
