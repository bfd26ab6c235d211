"""Transactions that are open in partitions, and the abort of one that no coordinator knows (KIP-664)."""

from __future__ import annotations

from typing import Any, Final

from penstock.console.kafka.cluster import TRANSACTION, Cluster, NotReachable, Refused, check, gap_of_error
from penstock.console.views.knowledge import Gap, gap_of_brokers
from penstock.console.views.samples import Key, partitions_of
from penstock.model.errors import PenstockError
from penstock.wire.apis.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest
from penstock.wire.apis.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

__all__ = ["abort_hanging", "list_open"]

_NO_TRANSACTION: Final = -1


async def list_open(cluster: Cluster) -> dict[str, Any]:
    """Transactions that are open in partitions; `hanging` are those that no coordinator has open.

    `hanging` is None where a coordinator has not responded: it may have the transaction.
    """
    found, gap = await _open(cluster)
    held, missing = await _coordinated(cluster, {state.producer_id for state in found.values()})
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "producer_id": str(state.producer_id),
            "start_offset": str(state.current_txn_start_offset),
            "last_ms": str(state.last_timestamp),
            "hanging": (
                False if (state.producer_id, (topic, partition)) in held else None if missing else True
            ),
        }
        for (topic, partition), state in sorted(found.items())
    ]
    gap = gap or missing
    return {"open": rows, "gap": None if gap is None else gap.shown()}


async def abort_hanging(cluster: Cluster, topic: str, partition: int, start_offset: int) -> None:
    """Write an ABORT marker; Refused unless every coordinator says that it does not have the transaction.

    Why: the marker of a transaction that its producer goes on with would hide committed records.
    """
    found, _ = await _open(cluster, [topic])
    state = found.get((topic, partition))
    if state is None or state.current_txn_start_offset != start_offset:
        what = f"no transaction is open from offset {start_offset} of {topic}-{partition} on"
        raise Refused("TRANSACTIONAL_ID_NOT_FOUND", what)
    held, missing = await _coordinated(cluster, {state.producer_id})
    if missing is not None:
        raise Refused("COORDINATOR_NOT_AVAILABLE", f"the transaction may be in use: {missing.reason}")
    if (state.producer_id, (topic, partition)) in held:
        raise Refused("INVALID_TXN_STATE", "the transaction is not hanging: its coordinator has it open")
    marker = WritableTxnMarker(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(state.coordinator_epoch, 0),
    )
    metadata = await cluster.metadata([topic])
    leader = partitions_of(metadata)[topic, partition].leader
    response = await cluster.send_to(leader, WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
    code = response.markers[0].topics[0].partitions[0].error_code
    check(code, None, f"the transaction in {topic}-{partition} is not aborted")


async def _open(
    cluster: Cluster, topics: list[str] | None = None
) -> tuple[dict[Key, ProducerState], Gap | None]:
    """The open transactions by partition, and the leaders that have not said theirs."""
    partitions = partitions_of(await cluster.metadata(topics))
    by_leader: dict[int, dict[str, list[int]]] = {}
    for (topic, index), p in partitions.items():
        if p.leader >= 0:
            by_leader.setdefault(p.leader, {}).setdefault(topic, []).append(index)
    requests = {
        leader: DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in own.items()]
        )
        for leader, own in by_leader.items()
    }
    found: dict[Key, ProducerState] = {}
    gaps: dict[int, Gap] = {}
    for leader, answer in (await cluster.try_each(DESCRIBE_PRODUCERS, requests)).items():
        if isinstance(answer, Refused | NotReachable):
            gaps[leader] = gap_of_error(answer)
            continue
        for described in answer.topics:
            for partition in described.partitions:
                for state in partition.active_producers:
                    if state.current_txn_start_offset > _NO_TRANSACTION:
                        found[described.name, partition.partition_index] = state
    return found, gap_of_brokers(gaps)


async def _coordinated(cluster: Cluster, producers: set[int]) -> tuple[set[tuple[int, Key]], Gap | None]:
    """Producers and partitions of the transactions that coordinators have open."""
    if not producers:
        return set(), None
    metadata = await cluster.metadata([])
    request = ListTransactionsRequest(producer_id_filters=sorted(producers))
    listed = await cluster.try_each(
        LIST_TRANSACTIONS, {broker.node_id: request for broker in metadata.brokers}
    )
    held: set[tuple[int, Key]] = set()
    gaps: dict[int, Gap] = {}
    for broker, answer in listed.items():
        if isinstance(answer, Refused | NotReachable):
            gaps[broker] = gap_of_error(answer)
            continue
        for each in answer.transaction_states:
            try:
                held |= await _partitions_of(cluster, each.transactional_id)
            except PenstockError as error:
                gaps[broker] = Gap("unknown", str(error))
    return held, gap_of_brokers(gaps)


async def _partitions_of(cluster: Cluster, transactional_id: str) -> set[tuple[int, Key]]:
    node = await cluster.coordinator(transactional_id, TRANSACTION)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = (await cluster.send_to(node, DESCRIBE_TRANSACTIONS, request)).transaction_states
    check(found.error_code, None, f"transactional id {transactional_id}")
    return {(found.producer_id, (topic.topic, index)) for topic in found.topics for index in topic.partitions}
