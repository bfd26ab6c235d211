"""Produce requests whose response is pending: for a worker, a disk or replicas.

A pending request is a plain object with at most one timer, not a task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.metrics import Metrics
from penstock.broker.produce.transactional import TransactionalAppends
from penstock.broker.produce.verification import NotVerified
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ApiError, ErrorCode, InvalidRecord, InvalidTimestamp, StorageError
from penstock.model.ids import TopicId
from penstock.net.buffers import BufferPool
from penstock.net.deferred import Deferred
from penstock.ports import Workers
from penstock.storage.log import Appended
from penstock.storage.sequence_gaps import RETRIED_IN_ORDER
from penstock.storage.validation import NotOneBatch
from penstock.wire.apis.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.messages import Skeleton

__all__ = ["Acknowledgement", "PendingProduce", "ProduceEnvironment", "fill_refusal", "respond"]

#: A response that is encoded but for three numbers, and those: partition, base offset, log start offset.
Acknowledgement: TypeAlias = tuple[Skeleton, tuple[int, int, int]]

#: Errors that arise without a look at the log. With any other error the response has the log start offset.
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
    }
)


@dataclass(frozen=True, slots=True)
class ProduceEnvironment:
    """The parts of a broker that all produce requests use."""

    partitions: Partitions
    metrics: Metrics
    workers: Workers
    #: accounts for the copies of batches whose append is deferred
    memory: BufferPool
    hints: LeaderHints
    #: verifies transactional batches; None refuses them
    transactional: TransactionalAppends | None = None


class PendingProduce:
    """A produce request whose response is pending.

    It holds one count for its handler and one for each outstanding append, flush and commit.
    """

    __slots__ = (
        "_acknowledgement",
        "_count",
        "_environment",
        "_timeout_s",
        "_timer",
        "_topics",
        "acks",
        "commits",
        "context",
        "deferred",
        "failed",
    )

    def __init__(
        self,
        environment: ProduceEnvironment,
        context: Context,
        request: ProduceRequest,
        topics: list[TopicProduceResponse],
        acknowledgement: Acknowledgement | None = None,
    ) -> None:
        """`topics` are the response. `acknowledgement` is the same response, encoded, if nothing fails."""
        self._environment = environment
        self.context = context
        context.answers = topics
        self.acks = request.acks
        self._topics = topics
        self._acknowledgement = acknowledgement
        #: the commits that are outstanding
        self.commits: dict[_PendingCommit, None] = {}
        #: true if an answer has an error
        self.failed = False
        self._timeout_s = request.timeout_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._count = 1
        self.deferred: Deferred[ProduceResponse | Acknowledgement | None] = Deferred()

    def expect_append(self, answer: PartitionProduceResponse, size: int) -> _PendingAppend:
        """Returns the function that takes the result of an append of `size` bytes by a worker."""
        self._count += 1
        return _PendingAppend(self, answer, size)

    def expect_flush(self, flusher: Flusher, answer: PartitionProduceResponse) -> None:
        self._count += 1

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                self.failed = True
                _fill_error(answer, error)
            self.context.mark("flush")
            self.one_less()

        flusher.when_flushed(flushed)

    def expect_commit(
        self, leadership: Leadership, end_offset: int, answer: PartitionProduceResponse
    ) -> None:
        """Wait until all records below `end_offset` are committed, but no longer than the request allows."""
        self._count += 1
        commit = _PendingCommit(self, answer)
        self.commits[commit] = None
        leadership.when_committed(end_offset, commit)
        if self.commits and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._timed_out)
            self.deferred.on_cancel = self._timer.cancel

    def _timed_out(self) -> None:
        """Fail all outstanding commits. The records stay, and may be committed later."""
        for commit in list(self.commits):
            commit(ErrorCode.REQUEST_TIMED_OUT)

    def one_less(self) -> None:
        """Release one count; the last one sends the response."""
        self._count -= 1
        if self._count:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._acknowledgement is not None and not self.failed:
            self.deferred.resolve(self._acknowledgement)
        else:
            self.deferred.resolve(
                respond(self._environment, self.context, self.acks, self._topics, self.failed)
            )


class _PendingCommit:
    """Takes the result of a commit: NONE, or the error."""

    __slots__ = ("_answer", "_request")

    def __init__(self, request: PendingProduce, answer: PartitionProduceResponse) -> None:
        self._request = request
        self._answer = answer

    def __call__(self, code: ErrorCode) -> None:
        request = self._request
        if self not in request.commits:
            # The request has timed out.
            return
        del request.commits[self]
        if code is not ErrorCode.NONE and not self._answer.error_code:
            request.failed = True
            _fill_error(self._answer, ApiError(code))
        request.one_less()


class _PendingAppend:
    """Takes the result of an append by a worker."""

    __slots__ = ("_answer", "_request", "_size")

    def __init__(self, request: PendingProduce, answer: PartitionProduceResponse, size: int) -> None:
        self._request = request
        self._answer = answer
        self._size = size

    def __call__(self, partition: Partition, result: Appended | ApiError) -> None:
        answer, request = self._answer, self._request
        request.context.mark("append")
        if isinstance(result, ApiError):
            request.failed = True
            fill_refusal(answer, result, partition)
        else:
            partition.stats.bytes_in += self._size
            partition.stats.records_in += result.last_offset - result.base_offset + 1
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.append_time_ms
            answer.log_start_offset = result.log_start_offset
            if partition.sync.acks_wait:
                request.expect_flush(partition.sync.flusher, answer)
            if partition.leadership is not None and request.acks < 0:
                request.expect_commit(partition.leadership, result.last_offset + 1, answer)
        request.one_less()


def respond(
    environment: ProduceEnvironment,
    context: Context,
    acks: int,
    topics: list[TopicProduceResponse],
    failed: bool,
) -> ProduceResponse | None:
    """The response. With acks=0 there is none, and an error closes the connection."""
    if failed:
        environment.metrics.produce_errors += 1
        context.stats.count_errors(
            answer.error_code for topic in topics for answer in topic.partition_responses
        )
    if acks == 0:
        if failed:
            context.connection.close()
        return None
    response = ProduceResponse(responses=topics)
    if failed:
        answers = (
            (topic.name or TopicId(topic.topic_id), answer.index, answer)
            for topic in topics
            for answer in topic.partition_responses
        )
        listener = context.listener.name
        response.node_endpoints = environment.hints.add(answers, listener, LeaderIdAndEpoch, NodeEndpoint)
    return response


def fill_refusal(answer: PartitionProduceResponse, error: ApiError, partition: Partition) -> None:
    """Fill the answer to a batch that `partition` has refused. As in Kafka, some errors have no log start."""
    _fill_error(answer, error)
    if error.code in RETRIED_IN_ORDER:
        partition.log.appender.sequence_gaps.refused()
    if error.code not in _WITHOUT_LOG_START and not isinstance(error, NotOneBatch | NotVerified):
        answer.log_start_offset = partition.log.log_start_offset


def _fill_error(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code = error.code
    answer.error_message = str(error)
    answer.base_offset = -1
    if isinstance(error, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
