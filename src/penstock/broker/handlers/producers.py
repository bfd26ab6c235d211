"""InitProducerId and DescribeProducers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.handlers.transactions import TransactionHandlers
from penstock.broker.node.producer_ids import ProducerIds
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.topics import check_topic_name
from penstock.model.errors import ErrorCode, InvalidTopic, PenstockError
from penstock.storage.producer_state import ProducerState as WrittenState
from penstock.wire.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["ProducerHandlers"]

log = get_logger("producers")
_PRODUCERS_AT_ONCE: Final = 100


class ProducerHandlers:
    """InitProducerId and DescribeProducers."""

    def __init__(
        self, producer_ids: ProducerIds, partitions: Partitions, transactions: TransactionHandlers
    ) -> None:
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._partitions = partitions

    def init_producer_id(self, context: Context, request: InitProducerIdRequest) -> Any:
        """A transactional id goes to its coordinator. Without one, a new producer id is allocated."""
        if request.transactional_id is not None:
            return self._transactions.init_producer_id(context, request)
        return context.spawn(self._allocate(request))

    async def _allocate(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Allocate a new producer id; the one in the request is ignored."""
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        try:
            producer_id = await self._producer_ids.next()
        except PenstockError as e:
            # No controller is reachable, or this broker is not registered yet: the producer retries.
            log.info("no_producer_id", error=str(e))
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def describe_producers(self, context: Context, request: DescribeProducersRequest) -> Any:
        return context.in_turns(self._described(request))

    def _described(
        self, request: DescribeProducersRequest
    ) -> Generator[None, None, DescribeProducersResponse]:
        """A client can make any number of producer ids, and write to one partition with all of them."""
        response = DescribeProducersResponse()
        for topic in request.topics:
            answers = []
            try:
                check_topic_name(topic.name)
            except InvalidTopic as e:
                answers = [
                    PartitionResponse(partition_index=index, error_code=e.code, error_message=str(e))
                    for index in topic.partition_indexes
                ]
                response.topics.append(TopicResponse(name=topic.name, partitions=answers))
                continue
            for index in topic.partition_indexes:
                answer = PartitionResponse(partition_index=index)
                answers.append(answer)
                partition = self._partitions.find(topic.name, index)
                if isinstance(partition, ErrorCode):
                    answer.error_code = partition
                    answer.error_message = "This server does not host this topic-partition."
                    continue
                # They may change between two slices.
                states = list(partition.log.producers.states.items())
                for start in range(0, len(states), _PRODUCERS_AT_ONCE):
                    some = states[start : start + _PRODUCERS_AT_ONCE]
                    answer.active_producers += [_producer(producer_id, state) for producer_id, state in some]
                    yield
            response.topics.append(TopicResponse(name=topic.name, partitions=answers))
        return response


def _producer(producer_id: int, state: WrittenState) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=-1 if state.transaction_start is None else state.transaction_start,
    )
