"""TxnOffsetCommit: verifies the transaction, then commits offsets that are pending until its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.produce.verification import Membership, TransactionVerifier
from penstock.broker.replica.partition import Partition
from penstock.coordination.outbox import EndMarker
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode, InvalidProducerEpoch, InvalidTxnState
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.storage.guards import VerificationGuard
from penstock.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.wire.schema import Struct

__all__ = ["TxnOffsetHandlers"]

#: the first versions that add the offsets to the transaction, know TRANSACTION_ABORTABLE, and know LOAD
_ADDS_FROM: Final = 5
_ABORTABLE_FROM: Final = 4
_LOAD_FROM: Final = 2
_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TxnOffsetHandlers:
    """Answers TxnOffsetCommit."""

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupShard],
        image: ClusterImage,
        verifier: TransactionVerifier,
        now_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._image = image
        self._verifier = verifier
        self._now_ms = now_ms

    def txn_offset_commit(self, context: Context, request: TxnOffsetCommitRequest) -> Any:
        """Commit to the existing partitions. Unknown topics and partitions get errors here."""
        refused: list[TxnOffsetCommitResponseTopic] = []
        accepted: list[TxnOffsetCommitRequestTopic] = []
        topic_ids: dict[str, bytes] = {}
        for topic in request.topics:
            known = self._image.topics.get(topic.name)
            indexes = {} if known is None else known.partitions
            missing = [p for p in topic.partitions if p.partition_index not in indexes]
            if missing:
                unknown = TxnOffsetCommitRequestTopic(name=topic.name, partitions=missing)
                refused.append(_topic_error(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if p.partition_index in indexes]
            if topic.partitions and known is not None:
                accepted.append(topic)
                topic_ids[topic.name] = known.id
        if not accepted:
            return TxnOffsetCommitResponse(topics=refused)
        request.topics = accepted

        def respond(response: Struct) -> Struct:
            assert isinstance(response, TxnOffsetCommitResponse)
            response.topics = [*response.topics, *refused]
            return response

        def error_response(error: ApiError) -> Struct:
            code = _shown(context.version, error.code)
            return TxnOffsetCommitResponse(topics=[*(_topic_error(t, code) for t in accepted), *refused])

        index = self._groups.topic.partition_for(request.group_id)
        partition = self._groups.partition(index)
        if partition is None:
            return error_response(ApiError(ErrorCode.NOT_COORDINATOR))
        commit = _Commit(self._groups, request, topic_ids, partition, respond, error_response)
        if commit.has_to_wait():
            return context.spawn(self._commit_after_append(context, request, commit, index, partition))
        return self._commit(context, request, commit, index, partition)

    def _commit(
        self,
        context: Context,
        request: TxnOffsetCommitRequest,
        commit: _Commit,
        index: int,
        partition: Partition,
    ) -> Any:
        try:
            guard = self._guard(context, request, partition)
        except ApiError as e:
            return commit.error_response(e)
        if guard is None:
            return commit.submit(None)
        return context.spawn(self._verify(context, request, commit, index, guard))

    async def _commit_after_append(
        self,
        context: Context,
        request: TxnOffsetCommitRequest,
        commit: _Commit,
        index: int,
        partition: Partition,
    ) -> Struct:
        """Commit in the next turn of the event loop, which begins with the append of this turn's records."""
        await asyncio.sleep(0)
        response = self._commit(context, request, commit, index, partition)
        return await awaited(response) if isinstance(response, Deferred) else response

    def _guard(
        self, context: Context, request: TxnOffsetCommitRequest, partition: Partition
    ) -> VerificationGuard | None:
        """None if the producer's transaction is open in this partition."""
        return partition.log.producers.start_verification(
            request.producer_id,
            request.producer_epoch,
            -1,
            context.version >= _ADDS_FROM,
            self._now_ms(),
        )

    async def _verify(
        self,
        context: Context,
        request: TxnOffsetCommitRequest,
        commit: _Commit,
        index: int,
        guard: VerificationGuard,
    ) -> Struct:
        # A coordinator that writes the markers of the transaction before answers when they are written.
        adds = context.version >= _ADDS_FROM
        membership = Membership(request.transactional_id, request.producer_id, request.producer_epoch, adds)
        verified: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._verifier.verify(membership, (OFFSETS_TOPIC, index), partial(_settle, verified))
        code = await verified
        if code:
            return commit.error_response(ApiError(_verification_error(context.version, code)))
        response = commit.submit(guard)
        return await awaited(response) if isinstance(response, Deferred) else response


def _settle(future: asyncio.Future[ErrorCode], code: ErrorCode) -> None:
    if not future.done():
        future.set_result(code)


class _Commit:
    """A verified request."""

    __slots__ = ("_groups", "_partition", "_request", "_respond", "_topic_ids", "error_response")

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupShard],
        request: TxnOffsetCommitRequest,
        topic_ids: Mapping[str, bytes],
        partition: Partition,
        respond: Callable[[Struct], Struct],
        error_response: Callable[[ApiError], Struct],
    ) -> None:
        self._groups = groups
        self._request = request
        self._topic_ids = topic_ids
        self._partition = partition
        self._respond = respond
        self.error_response = error_response

    def submit(self, guard: VerificationGuard | None) -> Struct | Deferred[Struct]:
        request = self._request

        def operate(shard: GroupShard, _: object) -> Struct:
            self._check(guard)
            size_max = self._partition.log.config.max_message_bytes
            return self._respond(shard.commit_transactional(request, self._topic_ids, guard, size_max))

        return self._groups.submit(request.group_id, operate, self.error_response)

    def has_to_wait(self) -> bool:
        """Returns true if the log does not have the end of a transaction of this producer yet."""
        request = self._request
        return any(
            isinstance(item, EndMarker) or item.producer_epoch != request.producer_epoch
            for item in self._groups.unappended(self._partition.index, request.producer_id)
        )

    def _check(self, guard: VerificationGuard | None) -> None:
        """The append would refuse these, and a refused append makes the shard load its log again."""
        request, producers = self._request, self._partition.log.producers
        if self.has_to_wait():
            # Decided since the request was verified. The client retries.
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        state = producers.states.get(request.producer_id)
        if state is not None and request.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(f"producer {request.producer_id} has epoch {state.epoch} here")
        is_open = state is not None and state.is_within(request.producer_epoch)
        if not is_open and (guard is None or producers.guards.get(request.producer_id) is not guard):
            raise InvalidTxnState(f"the transaction of producer {request.producer_id} has ended")


def _verification_error(version: int, code: ErrorCode) -> ErrorCode:
    """The error of a commit whose transaction could not be verified, as Kafka maps it."""
    if code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _shown(version: int, code: ErrorCode) -> ErrorCode:
    """Clients before Kafka 2.0 fail on COORDINATOR_LOAD_IN_PROGRESS."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOAD_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _topic_error(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )
