"""DescribeTransactions and ListTransactions: the transactional ids of this broker's partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.regexes import Regexes
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
from penstock.wire.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.wire.schema import Struct

__all__ = ["described", "listed", "listed_by_pattern"]

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


async def listed(
    context: Context, runtime: CoordinatorRuntime[TransactionShard], request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactions that match all filters, except for the regular expression.

    COORDINATOR_LOAD_IN_PROGRESS while a shard is loading.
    """
    unknown = [name for name in request.state_filters if name not in _STATES]
    wanted = TransactionFilter(
        # A state that is unknown or transient matches nothing, but it is a filter.
        {_STATES.get(name) for name in request.state_filters},
        set(request.producer_id_filters),
        request.duration_filter,
    )

    by_shard: dict[TransactionShard, Sequence[ListedTransaction]] = {}
    for index in list(runtime.indexes()):
        shard = runtime.shard(index)
        if shard is not None:
            by_shard[shard] = await context.until_done(shard.listing(wanted))

    def operation(shard: TransactionShard, _: None) -> Struct:
        # The transactions are those of records that may not be committed yet: a turn waits for them.
        return ListTransactionsResponse(transaction_states=[*by_shard.get(shard, ())])

    def finish(responses: list[Any]) -> Struct:
        for response in responses:
            if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ListTransactionsResponse(error_code=response.error_code)
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transaction_states=[found for response in responses for found in response.transaction_states],
        )

    response = runtime.submit_each(
        [(index, None) for index in runtime.indexes()],
        operation,
        lambda _, error: ListTransactionsResponse(error_code=error.code),
        finish,
    )
    return cast(
        ListTransactionsResponse, await awaited(response) if isinstance(response, Deferred) else response
    )


async def listed_by_pattern(
    context: Context,
    runtime: CoordinatorRuntime[TransactionShard],
    regexes: Regexes,
    request: ListTransactionsRequest,
) -> Struct:
    """The transactions whose ids match a regular expression, which a worker applies."""
    assert request.transactional_id_pattern is not None
    response = await listed(context, runtime, request)
    names = [each.transactional_id for each in response.transaction_states]
    try:
        matching = set(await regexes.matching(request.transactional_id_pattern, names))
    except ApiError as e:
        return ListTransactionsResponse(error_code=e.code)
    response.transaction_states = [
        each for each in response.transaction_states if each.transactional_id in matching
    ]
    return response
