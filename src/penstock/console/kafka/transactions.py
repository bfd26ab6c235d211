"""Transactions of all coordinators."""

from __future__ import annotations

from typing import Any

from penstock.console.kafka.cluster import TRANSACTION, Cluster, NotReachable, check
from penstock.console.views.payloads import iso
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

__all__ = ["describe_transaction", "list_transactions"]


async def list_transactions(cluster: Cluster) -> dict[str, Any]:
    """Transactional ids with their states, and the brokers that have not responded."""
    metadata = await cluster.metadata([])
    requests = {broker.node_id: ListTransactionsRequest() for broker in metadata.brokers}
    answers = await cluster.send_each(LIST_TRANSACTIONS, requests)
    if all(answer is None for answer in answers.values()):
        raise NotReachable("no broker lists its transactions")
    rows = [
        {
            "id": found.transactional_id,
            "state": found.transaction_state,
            "producer_id": str(found.producer_id),
            "coordinator": broker,
        }
        for broker, answer in answers.items()
        if answer is not None and not answer.error_code
        for found in answer.transaction_states
    ]
    silent = sorted(broker for broker, answer in answers.items() if answer is None)
    return {"transactions": sorted(rows, key=lambda row: str(row["id"])), "silent": silent}


async def describe_transaction(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    node = await cluster.coordinator(transactional_id, TRANSACTION)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = await cluster.send_to(node, DESCRIBE_TRANSACTIONS, request)
    (found,) = answer.transaction_states
    check(found.error_code, None, f"transactional id {transactional_id}")
    return {
        "id": transactional_id,
        "state": found.transaction_state,
        "coordinator": node,
        "producer_id": str(found.producer_id),
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started": iso(found.transaction_start_time_ms),
        "partitions": [{"topic": each.topic, "partitions": sorted(each.partitions)} for each in found.topics],
    }
