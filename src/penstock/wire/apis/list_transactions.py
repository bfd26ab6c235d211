"""ListTransactions, versions 0 to 2: filters by duration from 1 on, by a pattern from 2 on."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, int64, nullable_string, string


class ListTransactionsRequest(Struct):
    state_filters: list[str] = array(string())
    producer_id_filters: list[int] = array(int64())
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = nullable_string("2+")


class ListedTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string())
    transaction_states: list[ListedTransaction] = array(ListedTransaction)


LIST_TRANSACTIONS = Api(
    66,
    "ListTransactions",
    (0, 2),
    flexible_from=0,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)
