"""The APIs of the transaction coordinator: requests by version, and errors that old clients do not know."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.base.regexes import Regexes
from penstock.broker.coordinators.internal_topic import InternalTopic
from penstock.broker.coordinators.replies import PendingReply
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.transaction_additions import (
    BATCHED_FROM,
    FENCED_FROM,
    PartitionAdditions,
    gathered,
    known_error,
)
from penstock.broker.handlers.transaction_listing import described, listed, listed_by_pattern
from penstock.broker.node.producer_ids import ProducerIds
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import TWO_PHASE_COMMIT, refused
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.transactions.initialization import Initialization
from penstock.transactions.shard import Addition, TransactionShard
from penstock.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.apis.describe_transactions import DescribeTransactionsRequest
from penstock.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.apis.list_transactions import ListTransactionsRequest
from penstock.wire.schema import Struct

__all__ = ["TransactionHandlers"]

log = get_logger("transactions")
#: the first versions with PRODUCER_FENCED, and those of transaction.version 2
_INIT_FENCED_FROM: Final = 4
_END_V2_FROM: Final = 5


class TransactionHandlers:
    """InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and listings."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        additions: PartitionAdditions,
        offsets_topic: InternalTopic,
        image: ClusterImage,
        producer_ids: ProducerIds,
        regexes: Regexes,
    ) -> None:
        self._runtime = runtime
        self._regexes = regexes
        self._additions = additions
        self._offsets_topic = offsets_topic
        self._image = image
        self._producer_ids = producer_ids

    # -- InitProducerId

    def init_producer_id(self, context: Context, request: InitProducerIdRequest) -> Any:
        """Answers a request with a transactional id."""
        if self._producer_ids.is_empty:
            return context.spawn(self._allocate_and_init(context, request))
        return self._init(context, request)

    async def _allocate_and_init(self, context: Context, request: InitProducerIdRequest) -> Any:
        await self._producer_ids.refill()
        response = self._init(context, request)
        return await awaited(response) if isinstance(response, Deferred) else response

    def _init(self, context: Context, request: InitProducerIdRequest) -> Struct | Deferred[Struct]:
        transactional_id = request.transactional_id or ""
        if not transactional_id:
            # It belongs to no partition of the topic, which may not exist yet.
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        expected = None
        if request.producer_id != -1 or request.producer_epoch != -1:
            if -1 in (request.producer_id, request.producer_epoch):
                return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
            expected = (request.producer_id, request.producer_epoch)

        if request.enable_2pc or request.keep_prepared_txn:
            off = refused(self._image.features, TWO_PHASE_COMMIT)
            if off is not None:
                return InitProducerIdResponse(error_code=off.code, producer_epoch=-1)
        wanted = Initialization(
            request.transaction_timeout_ms, expected, request.enable_2pc, request.keep_prepared_txn
        )

        def operate(shard: TransactionShard, _: PendingReply) -> Struct:
            return shard.init_producer_id(transactional_id, wanted)

        def error_response(error: ApiError) -> Struct:
            code = known_error(error.code, context.version >= _INIT_FENCED_FROM)
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)

        return self._runtime.submit(transactional_id, operate, error_response)

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions_to_txn(self, context: Context, request: AddPartitionsToTxnRequest) -> Any:
        """Versions up to 3 are of clients, for one transaction."""
        if context.is_large:
            return context.spawn(self._add_many(context, request))
        if context.version >= BATCHED_FROM:
            return self._additions.add_all(request, context.version)
        return gathered(
            [self._additions.add(_of_client(request), context.version)],
            lambda results: AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=results[0].topic_results
            ),
        )

    async def _add_many(
        self, context: Context, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        additions, version = self._additions, context.version
        if version < BATCHED_FROM:
            result: Any = await additions.add_in_turns(context, _of_client(request), version)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
        response = AddPartitionsToTxnResponse()
        for transaction in request.transactions:
            added: Any = await additions.add_in_turns(context, transaction, version)
            response.results_by_transaction.append(added)
        return response

    def add_offsets_to_txn(self, context: Context, request: AddOffsetsToTxnRequest) -> Any:
        """Add the partition of `__consumer_offsets` that holds the group's offsets.

        Creates the topic if it does not exist yet. Why: clients of `transaction.version` 1 look for the
        coordinator of the group, which creates the topic, only after this request has succeeded.
        """
        index = self._offsets_topic.partition_for(request.group_id)
        if index < 0:
            return context.spawn(self._create_and_add_offsets(context, request))
        return self._add_offsets(context, request, index)

    async def _create_and_add_offsets(self, context: Context, request: AddOffsetsToTxnRequest) -> Any:
        try:
            await self._offsets_topic.ensure()
        except ApiError as e:
            log.warning("no_offsets_topic", reason=str(e))
        index = self._offsets_topic.partition_for(request.group_id)
        if index < 0:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        response = self._add_offsets(context, request, index)
        return await awaited(response) if isinstance(response, Deferred) else response

    def _add_offsets(
        self, context: Context, request: AddOffsetsToTxnRequest, index: int
    ) -> Struct | Deferred[Struct]:
        addition = Addition(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            frozenset({(OFFSETS_TOPIC, index)}),
            0,
        )

        def respond(code: ErrorCode) -> Struct:
            return AddOffsetsToTxnResponse(error_code=known_error(code, context.version >= FENCED_FROM))

        def operate(shard: TransactionShard, pending: PendingReply) -> Struct | None:
            return shard.add_partitions(addition, respond, pending)

        return self._runtime.submit(request.transactional_id, operate, lambda error: respond(error.code))

    # -- EndTxn

    def end_txn(self, context: Context, request: EndTxnRequest) -> Any:
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        version = 2 if context.version >= _END_V2_FROM else 0

        def operate(shard: TransactionShard, _: PendingReply) -> Struct:
            return shard.end_transaction(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.committed,
                version,
            )

        def error_response(error: ApiError) -> Struct:
            return EndTxnResponse(error_code=known_error(error.code, context.version >= FENCED_FROM))

        return self._runtime.submit(request.transactional_id, operate, error_response)

    # -- listings

    def describe_transactions(self, context: Context, request: DescribeTransactionsRequest) -> Any:
        return described(self._runtime, request)

    def list_transactions(self, context: Context, request: ListTransactionsRequest) -> Any:
        if request.transactional_id_pattern:
            return context.spawn(listed_by_pattern(context, self._runtime, self._regexes, request))
        return context.spawn(listed(context, self._runtime, request))


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    """The transaction of a request of an old version, which has one."""
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
