"""Transactions of any Kafka cluster, for `penstock transaction`: list, describe, find hanging ones, abort."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text
from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from penstock.wire.apis.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.wire.routing import TRANSACTION, coordinator_in, coordinator_request

__all__ = ["OpenTransaction", "abort", "describe", "find_hanging", "list_transactions"]

#: (topic, partition)
_Partition = tuple[str, int]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as its leader knows it."""

    topic: str
    partition: int
    leader: str
    producer: ProducerState


def list_transactions(line: DirectLine, request: ListTransactionsRequest) -> list[dict[str, Any]]:
    """The transactions of all coordinators. A broker that does not answer is a Failure."""
    cluster = _metadata(line, [])
    rows = []
    brokers = {address_text(broker.host, broker.port): broker.node_id for broker in cluster.brokers}
    for address, response in line.send_each(brokers, LIST_TRANSACTIONS, request).items():
        if response is None:
            raise NoAnswer(f"{address} does not list its transactions")
        refuse(response.error_code, None, f"{address} does not list its transactions")
        rows += [
            {
                "transactional_id": found.transactional_id,
                "coordinator": brokers[address],
                "producer_id": found.producer_id,
                "state": found.transaction_state,
            }
            for found in response.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


def describe(line: DirectLine, transactional_id: str) -> tuple[int, DescribedTransaction]:
    """The coordinator's broker, and the state of a transactional id."""
    found = coordinator_in(line.send(FIND_COORDINATOR, coordinator_request(transactional_id, TRANSACTION)))
    about = f"transactional id {transactional_id!r}"
    refuse(found.error_code, found.error_message, about)
    node, address = found.node_id, address_text(found.host, found.port)
    wanted = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = line.send_each([address], DESCRIBE_TRANSACTIONS, wanted)[address]
    if answer is None:
        raise NoAnswer(f"{address} does not describe its transactions")
    (state,) = answer.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise Failure(f"there is no {about}: `penstock transaction list` shows all")
    refuse(state.error_code, None, about)
    return node, state


def open_transactions(line: DirectLine, topics: Iterable[str]) -> list[OpenTransaction]:
    """The transactions that are open in partitions of `topics`, or of all topics if there are none."""
    cluster = _metadata(line, [*topics] or None)
    addresses = {broker.node_id: address_text(broker.host, broker.port) for broker in cluster.brokers}
    by_leader: dict[str, dict[str, list[int]]] = {}
    for topic in cluster.topics:
        refuse(topic.error_code, None, f"topic {topic.name!r}")
        for partition in topic.partitions:
            if partition.leader_id in addresses:
                known = by_leader.setdefault(addresses[partition.leader_id], {})
                known.setdefault(topic.name or "", []).append(partition.partition_index)
    found = []
    for address, wanted in by_leader.items():
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        )
        response = line.send_each([address], DESCRIBE_PRODUCERS, request)[address]
        if response is None:
            raise NoAnswer(f"{address} does not describe its producers")
        found += [
            OpenTransaction(described.name, partition.partition_index, address, producer)
            for described in response.topics
            for partition in described.partitions
            for producer in partition.active_producers
            if producer.current_txn_start_offset >= 0
        ]
    return found


def find_hanging(
    line: DirectLine, topics: Iterable[str], now_ms: int, timeout_ms_max: int
) -> list[OpenTransaction]:
    """Transactions that are open for longer than any timeout, and that no coordinator has open."""
    late = [
        each
        for each in open_transactions(line, topics)
        if now_ms - each.producer.last_timestamp > timeout_ms_max
    ]
    if not late:
        return []
    producers = sorted({each.producer.producer_id for each in late})
    coordinated: set[tuple[int, _Partition]] = set()
    for row in list_transactions(line, ListTransactionsRequest(producer_id_filters=producers)):
        _, state = describe(line, row["transactional_id"])
        coordinated |= {
            (state.producer_id, (topic.topic, index)) for topic in state.topics for index in topic.partitions
        }
    return [
        each for each in late if (each.producer.producer_id, (each.topic, each.partition)) not in coordinated
    ]


def abort(line: DirectLine, topic: str, partition: int, start_offset: int) -> OpenTransaction:
    """Write an ABORT marker for the transaction that starts at an offset of a partition."""
    for each in open_transactions(line, [topic]):
        if (each.partition, each.producer.current_txn_start_offset) == (partition, start_offset):
            break
    else:
        raise Failure(f"no transaction is open from offset {start_offset} of {topic}-{partition} on")
    marker = WritableTxnMarker(
        producer_id=each.producer.producer_id,
        producer_epoch=each.producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(each.producer.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    response = line.send_each([each.leader], WRITE_TXN_MARKERS, request)[each.leader]
    if response is None:
        raise NoAnswer(f"{each.leader} does not write the marker")
    code = response.markers[0].topics[0].partitions[0].error_code
    refuse(code, None, f"the transaction in {topic}-{partition} is not aborted")
    return each


def _metadata(line: DirectLine, topics: list[str] | None) -> MetadataResponse:
    """The brokers, and the partitions of some topics; None for all topics."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return line.send(METADATA, MetadataRequest(topics=named, allow_auto_topic_creation=False))
