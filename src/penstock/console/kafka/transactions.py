"""Transactions of all coordinators."""

from __future__ import annotations

from typing import Any

from penstock.console.kafka.cluster import TRANSACTION, Cluster, NotReachable, Refused, check, gap_of_error
from penstock.console.views.knowledge import Gap, gap_of_brokers, gap_of_code
from penstock.console.views.payloads import iso
from penstock.model.errors import PenstockError
from penstock.wire.apis.describe_transactions import DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

__all__ = ["describe_transaction", "list_transactions"]


async def list_transactions(cluster: Cluster) -> dict[str, Any]:
    """Transactional ids with their states, and why some are missing; None if all are."""
    metadata = await cluster.metadata([])
    requests = {broker.node_id: ListTransactionsRequest() for broker in metadata.brokers}
    answers = await cluster.try_each(LIST_TRANSACTIONS, requests)
    gaps: dict[int, Gap] = {}
    for broker, answer in answers.items():
        gap = (
            gap_of_error(answer)
            if isinstance(answer, Refused | NotReachable)
            else gap_of_code(answer.error_code)
        )
        if gap is not None:
            gaps[broker] = gap
    missing = gap_of_brokers(gaps)
    rows = [
        {
            "id": found.transactional_id,
            "state": found.transaction_state,
            "producer_id": str(found.producer_id),
            "coordinator": broker,
        }
        for broker, answer in answers.items()
        if not isinstance(answer, PenstockError) and not answer.error_code
        for found in answer.transaction_states
    ]
    known = None if gaps.keys() == answers.keys() else sorted(rows, key=lambda row: str(row["id"]))
    return {"transactions": known, "gap": None if missing is None else missing.shown()}


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
