"""Adds partitions to transactions, or verifies that they belong to one: AddPartitionsToTxn by transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.coordinators.replies import PendingReply
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import INTERNAL_TOPICS
from penstock.model.steps import at_once
from penstock.net.deferred import Deferred
from penstock.transactions.metadata import TopicPartition
from penstock.transactions.shard import Addition, TransactionShard
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.schema import Struct

__all__ = ["BATCHED_FROM", "FENCED_FROM", "PartitionAdditions", "gathered", "known_error"]

#: the first versions with PRODUCER_FENCED, and with several transactions: those are of brokers
FENCED_FROM: Final = 2
BATCHED_FROM: Final = 4
#: partitions between two yields
_STEP: Final = 64
#: the error of each partition of a transaction
_Codes: TypeAlias = dict[TopicPartition, ErrorCode]


class PartitionAdditions:
    """Submits additions to the shards of this broker."""

    def __init__(self, runtime: CoordinatorRuntime[TransactionShard], image: ClusterImage) -> None:
        self._runtime = runtime
        self._image = image

    def add_all(
        self, request: AddPartitionsToTxnRequest, version: int = BATCHED_FROM
    ) -> Struct | Deferred[Struct]:
        """Answers a request of another broker."""
        return gathered(
            [self.add(transaction, version) for transaction in request.transactions],
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )

    def add(self, transaction: AddPartitionsToTxnTransaction, version: int) -> Struct | Deferred[Struct]:
        """The result for one transaction. One bad partition fails all: none is added."""
        transactional_id = transaction.transactional_id
        codes, has_failed = at_once(self._checked(transaction, version < BATCHED_FROM))
        if has_failed:
            return at_once(_result(transactional_id, codes))
        return self._submit(
            transaction, version, codes, lambda found: at_once(_result(transactional_id, found))
        )

    async def add_in_turns(
        self, context: Context, transaction: AddPartitionsToTxnTransaction, version: int
    ) -> Struct:
        """As `add`, for a transaction with many partitions. Only the decision itself is made at once."""
        transactional_id = transaction.transactional_id
        codes, has_failed = await context.until_done(self._checked(transaction, version < BATCHED_FROM))
        if not has_failed:
            decided: list[_Codes] = []

            def respond(found: _Codes) -> Struct:
                decided.append(found)
                return AddPartitionsToTxnResult(transactional_id=transactional_id)

            response = self._submit(transaction, version, codes, respond)
            if isinstance(response, Deferred):
                await awaited(response)
            codes = decided[-1]
        return await context.until_done(_result(transactional_id, codes))

    def _checked(
        self, transaction: AddPartitionsToTxnTransaction, of_client: bool
    ) -> Generator[None, None, tuple[_Codes, bool]]:
        """The error of each partition, and whether any has one."""
        codes: _Codes = {}
        has_failed = False
        for topic in transaction.topics:
            for index in topic.partitions:
                code = codes[topic.name, index] = self._check_partition((topic.name, index), of_client)
                has_failed = has_failed or bool(code)
                if not len(codes) % _STEP:
                    yield
            yield
        if has_failed:
            for number, (partition, code) in enumerate(codes.items()):
                if not code:
                    codes[partition] = ErrorCode.OPERATION_NOT_ATTEMPTED
                if not number % _STEP:
                    yield
        return codes, has_failed

    def _submit(
        self,
        transaction: AddPartitionsToTxnTransaction,
        version: int,
        wanted: _Codes,
        result: Callable[[_Codes], Struct],
    ) -> Struct | Deferred[Struct]:
        addition = Addition(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            frozenset(wanted),
            0 if version < BATCHED_FROM else 2,
        )

        def respond(code: ErrorCode) -> Struct:
            return result(dict.fromkeys(wanted, known_error(code, version >= FENCED_FROM)))

        def operate(shard: TransactionShard, pending: PendingReply) -> Struct | None:
            if transaction.verify_only:
                return result(shard.verify_partitions(addition))
            return shard.add_partitions(addition, respond, pending)

        return self._runtime.submit(transaction.transactional_id, operate, lambda error: respond(error.code))

    def _check_partition(self, partition: TopicPartition, of_client: bool) -> ErrorCode:
        name, index = partition
        if of_client and name in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._image.topics.get(name)
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


def known_error(code: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """Old clients do not know PRODUCER_FENCED."""
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _result(transactional_id: str, codes: _Codes) -> Generator[None, None, AddPartitionsToTxnResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for number, ((name, index), code) in enumerate(codes.items(), 1):
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name)
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
        if not number % _STEP:
            yield
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=list(topics.values()))


def gathered(
    responses: Sequence[Struct | Deferred[Struct]], finish: Callable[[list[Any]], Struct]
) -> Struct | Deferred[Struct]:
    """Combine responses that may come later, in the order of their requests."""
    values: list[Any] = list(responses)
    missing = sum(isinstance(response, Deferred) for response in responses)
    if not missing:
        return finish(values)
    result: Deferred[Struct] = Deferred()

    def arrived(position: int, value: Struct) -> None:
        nonlocal missing
        values[position] = value
        missing -= 1
        if not missing:
            result.resolve(finish(values))

    for position, response in enumerate(responses):
        if isinstance(response, Deferred):
            response.then(partial(arrived, position))
    return result
