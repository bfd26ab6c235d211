"""DescribeTransactions and ListTransactions: the transactional ids of this broker's partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.transactions.shard import TransactionFilter, TransactionShard
from penstock.transactions.states import TransactionState
from penstock.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.schema import Struct

__all__ = ["described", "listed"]

#: The states by name. The transactions of this broker are never in Kafka's transient ones.
_STATES: Final[Mapping[str, TransactionState | None]] = {
    **{state.label: state for state in TransactionState},
    "Dead": None,
    "PrepareEpochFence": None,
}


def described(
    runtime: CoordinatorRuntime[TransactionShard], request: DescribeTransactionsRequest
) -> Struct | Deferred[Struct]:
    def operation(shard: TransactionShard, transactional_id: str) -> Struct:
        return shard.describe(transactional_id)

    def error_response(transactional_id: str, error: ApiError) -> Struct:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)

    return runtime.submit_each(
        ((runtime.topic.partition_for(name), name) for name in request.transactional_ids),
        operation,
        error_response,
        lambda found: DescribeTransactionsResponse(transaction_states=found),
    )


def listed(
    runtime: CoordinatorRuntime[TransactionShard], request: ListTransactionsRequest
) -> Struct | Deferred[Struct]:
    """The transactions that match all filters; COORDINATOR_LOAD_IN_PROGRESS while a shard is loading."""
    try:
        matches = _matcher(request.transactional_id_pattern)
    except ApiError as e:
        return ListTransactionsResponse(error_code=e.code)
    unknown = [name for name in request.state_filters if name not in _STATES]
    wanted = TransactionFilter(
        # A state that is unknown or transient matches nothing, but it is a filter.
        {_STATES.get(name) for name in request.state_filters},
        set(request.producer_id_filters),
        request.duration_filter,
        matches,
    )

    def operation(shard: TransactionShard, _: None) -> Struct:
        return ListTransactionsResponse(transaction_states=shard.list(wanted))

    def finish(responses: list[Any]) -> Struct:
        for response in responses:
            if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ListTransactionsResponse(error_code=response.error_code)
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[found for response in responses for found in response.transaction_states],
        )

    return runtime.submit_each(
        [(index, None) for index in runtime.indexes()],
        operation,
        lambda _, error: ListTransactionsResponse(error_code=error.code),
        finish,
    )


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """RE2 takes linear time for any pattern, so a client cannot stall the broker."""
    if not pattern:
        return lambda _: True
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as e:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{pattern}` is not a valid regular expression.",
        ) from e
    return lambda name: compiled.fullmatch(name) is not None
