"""DescribeTransactions, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Struct):
    transactional_ids: list[str] = array(string())


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class DescribedTransaction(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Struct):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)


DESCRIBE_TRANSACTIONS = Api(
    65,
    "DescribeTransactions",
    (0, 0),
    flexible_from=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
)
