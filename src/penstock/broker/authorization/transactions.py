"""Checks of the APIs about producers and transactions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from penstock.broker.authorization.forms import (
    Environment,
    Merge,
    on_cluster,
    refusal,
    refusing,
    splitting,
)
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from penstock.wire.apis.describe_transactions import DescribedTransaction
from penstock.wire.apis.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.wire.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

__all__ = [
    "check_add_offsets",
    "check_add_partitions",
    "check_describe_transactions",
    "check_end_txn",
    "check_init_producer_id",
    "check_list_transactions",
    "check_txn_offset_commit",
    "check_write_txn_markers",
]

_TOPIC, _GROUP, _TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_TXN: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NO_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
#: the first version of AddPartitionsToTxn that brokers send
_BATCHED: Final = 4
#: partitions between two yields
_STEP: Final = 64


def _init_producer_id(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    access, name = environment.access, request.transactional_id
    if name is not None:
        allowed = access.allows(context, Operation.WRITE, _TXN, name) and (
            not request.enable_2pc or access.allows(context, Operation.TWO_PHASE_COMMIT, _TXN, name)
        )
        return None if allowed else refusal(api, _NO_TXN)
    if access.allows_on_cluster(context, Operation.IDEMPOTENT_WRITE, quiet=True):
        return None
    if access.allows_on_any(context, Operation.WRITE, _TOPIC):
        return None
    return refusal(api, _NO_CLUSTER)


def _end_txn(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    allowed = environment.access.allows(context, Operation.WRITE, _TXN, request.transactional_id)
    return None if allowed else refusal(api, _NO_TXN)


def _add_offsets(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    refused = _end_txn(environment, api, context, request)
    if refused is None and not environment.access.allows(context, Operation.READ, _GROUP, request.group_id):
        refused = refusal(api, _NO_GROUP)
    return refused


def _add_partitions(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """Version 4 and later is for brokers. As in Kafka, one denied topic fails all others with error 55."""
    access = environment.access
    if context.version >= _BATCHED:
        if access.allows_on_cluster(context, Operation.CLUSTER_ACTION):
            return None
        return AddPartitionsToTxnResponse(error_code=_NO_CLUSTER)
    if not access.allows(context, Operation.WRITE, _TXN, request.v3_and_below_transactional_id):
        return _unadded(request, lambda name: _NO_TXN)
    return _denied_additions(environment, context, request)


def _denied_additions(
    environment: Environment, context: Context, request: Any
) -> Generator[None, None, AddPartitionsToTxnResponse | None]:
    denied = set()
    for topic in request.v3_and_below_topics:
        if not environment.access.allows(context, Operation.WRITE, _TOPIC, topic.name):
            denied.add(topic.name)
        yield
    if not denied:
        return None
    return (
        yield from _unadded(
            request, lambda name: _NO_TOPIC if name in denied else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
    )


def _unadded(
    request: Any, code_of: Callable[[str], ErrorCode]
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    for topic in request.v3_and_below_topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        code = code_of(topic.name)
        for number, index in enumerate(topic.partitions, 1):
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
            if not number % _STEP:
                yield
        response.results_by_topic_v3_and_below.append(result)
        yield
    return response


def _txn_offset_error(topic: Any, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def _refused_txn_offsets(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    access = environment.access
    code = ErrorCode.NONE
    if not access.allows(context, Operation.WRITE, _TXN, request.transactional_id):
        code = _NO_TXN
    elif not access.allows(context, Operation.READ, _GROUP, request.group_id):
        code = _NO_GROUP
    if not code:
        return None
    return TxnOffsetCommitResponse(topics=[_txn_offset_error(topic, code) for topic in request.topics])


def _txn_offsets(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(
        context, Operation.READ, _TOPIC, request.topics, lambda topic: str(topic.name)
    )
    request.topics = allowed

    def merge(response: Any) -> Any:
        response.topics += [_txn_offset_error(topic, _NO_TOPIC) for topic in denied]
        return response

    return merge if denied else None


def check_txn_offset_commit(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_txn_offsets)(environment, api, handler)
    return refusing(_refused_txn_offsets)(environment, api, inner)


def _refused_markers(context: Context, request: Any, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _describe_transactions(environment: Environment, context: Context, request: Any) -> Merge:
    access = environment.access
    allowed, denied = environment.split(context, Operation.DESCRIBE, _TXN, request.transactional_ids, str)
    request.transactional_ids = allowed

    def merge(response: Any) -> Any:
        for state in response.transaction_states:
            state.topics = [
                topic
                for topic in state.topics
                if access.allows(context, Operation.DESCRIBE, _TOPIC, topic.topic, quiet=True)
            ]
        response.transaction_states += [
            DescribedTransaction(transactional_id=name, error_code=_NO_TXN) for name in denied
        ]
        return response

    return merge


def _list_transactions(environment: Environment, context: Context, request: Any) -> Merge:
    access = environment.access

    def merge(response: Any) -> Any:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if access.allows(context, Operation.DESCRIBE, _TXN, state.transactional_id, quiet=True)
        ]
        return response

    return merge


check_init_producer_id = refusing(_init_producer_id)
check_end_txn = refusing(_end_txn)
check_add_offsets = refusing(_add_offsets)
check_add_partitions = refusing(_add_partitions)
check_write_txn_markers = on_cluster(Operation.ALTER, Operation.CLUSTER_ACTION, refuse=_refused_markers)
check_describe_transactions = splitting(_describe_transactions)
check_list_transactions = splitting(_list_transactions)
