"""Produce requests that wait: for a worker, for a disk, for replicas. No task, at most one timer each."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.base.leader_hints import LeaderHints
from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, InvalidRecord, InvalidTimestamp, StorageError
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.storage.log import Appended
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

__all__ = ["Acknowledgement", "Rest", "Uncommitted", "finished", "refuse"]

#: a response that is encoded but for three numbers, and those: partition, base offset, log start offset
Acknowledgement: TypeAlias = tuple[Skeleton, tuple[int, int, int]]

#: errors before or instead of a look at the log: with any other, clients learn where it starts
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


class Rest:
    """What a request still waits for before it is answered; first for `one_less` of its handler."""

    __slots__ = (
        "_context",
        "_count",
        "_flushes",
        "_timeout_s",
        "_timer",
        "_topics",
        "_uncommitted",
        "acks",
        "deferred",
    )

    def __init__(self, context: Context, request: ProduceRequest, topics: list[TopicProduceResponse]) -> None:
        self._context = context
        self.acks = request.acks
        self._topics = topics
        self._flushes: dict[Flusher, list[PartitionProduceResponse]] = {}
        #: answers that wait for replicas, by their ids
        self._uncommitted: dict[int, PartitionProduceResponse] = {}
        self._timeout_s = request.timeout_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._count = 1
        self.deferred: Deferred[ProduceResponse | Acknowledgement | None] = Deferred()

    def expect(self, answer: PartitionProduceResponse, size: int) -> Expected:
        self._count += 1
        return Expected(self, self._context.broker.metrics, answer, size)

    def expect_flush(self, flusher: Flusher, answer: PartitionProduceResponse) -> None:
        answers = self._flushes.get(flusher)
        if answers is not None:
            answers.append(answer)
            return
        answers = self._flushes[flusher] = [answer]
        self._count += 1

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                for answer in answers:
                    _fill_error(answer, error)
            # Whoever comes later, from a deferred append, waits for a flush of its own.
            del self._flushes[flusher]
            self.one_less()

        flusher.when_flushed(flushed)

    def expect_commit(
        self, leadership: Leadership, end_offset: int, answer: PartitionProduceResponse
    ) -> None:
        """Wait until enough replicas have everything below `end_offset`, but not longer than was asked."""
        self._count += 1
        self._uncommitted[id(answer)] = answer

        def committed(code: ErrorCode) -> None:
            if self._uncommitted.pop(id(answer), None) is not None:
                if code is not ErrorCode.NONE and not answer.error_code:
                    _fill_error(answer, ApiError(code))
                self.one_less()

        leadership.when_committed(end_offset, committed)
        if self._uncommitted and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._timed_out)
            self.deferred.on_cancel = self._timer.cancel

    def _timed_out(self) -> None:
        """What was appended stays, and may be committed yet; the client cannot know."""
        uncommitted, self._uncommitted = self._uncommitted, {}
        for answer in uncommitted.values():
            _fill_error(answer, ApiError(ErrorCode.REQUEST_TIMED_OUT))
            self.one_less()

    def one_less(self) -> None:
        self._count -= 1
        if not self._count:
            if self._timer is not None:
                self._timer.cancel()
            failed = any(answer.error_code for topic in self._topics for answer in topic.partition_responses)
            self.deferred.resolve(finished(self._context, self.acks, self._topics, failed))


class Uncommitted:
    """The usual request with acks=all: one batch, which waits for replicas and for nothing else."""

    __slots__ = ("_acknowledgement", "_context", "_place", "_timer", "deferred")

    def __init__(
        self,
        context: Context,
        request: ProduceRequest,
        acknowledgement: Acknowledgement,
        leadership: Leadership,
        end_offset: int,
    ) -> None:
        self._context = context
        self._acknowledgement = acknowledgement
        (topic,) = request.topic_data
        # Not the request itself: its records belong to the receive buffer.
        self._place = topic.name, topic.topic_id, topic.partition_data[0].index
        self._timer: asyncio.TimerHandle | None = None
        self.deferred: Deferred[ProduceResponse | Acknowledgement | None] = Deferred()
        leadership.when_committed(end_offset, self)
        if not self.deferred.done:
            self._timer = asyncio.get_running_loop().call_later(
                # What was appended stays, and may be committed yet; the client cannot know.
                request.timeout_ms / 1000,
                self,
                ErrorCode.REQUEST_TIMED_OUT,
            )
            self.deferred.on_cancel = self._timer.cancel

    def __call__(self, code: ErrorCode) -> None:
        """The replicas have the batch, or it is clear that nobody will say so; the first news counts."""
        if self._timer is not None:
            self._timer.cancel()
        if code is ErrorCode.NONE or self.deferred.done:
            self.deferred.resolve(self._acknowledgement)
            return
        name, topic_id, index = self._place
        answer = PartitionProduceResponse(index=index)
        _fill_error(answer, ApiError(code))
        topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
        self.deferred.resolve(finished(self._context, -1, [topic], failed=True))


class Expected:
    """Takes the result of an append that went through a worker."""

    __slots__ = ("_answer", "_metrics", "_rest", "_size")

    def __init__(self, rest: Rest, metrics: Metrics, answer: PartitionProduceResponse, size: int) -> None:
        self._rest = rest
        self._metrics = metrics
        self._answer = answer
        self._size = size

    def __call__(self, partition: Partition, result: Appended | ApiError) -> None:
        answer = self._answer
        if isinstance(result, ApiError):
            refuse(answer, result, partition)
        else:
            self._metrics.bytes_in += self._size
            self._metrics.messages_in += result.last_offset - result.base_offset + 1
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.append_time_ms
            answer.log_start_offset = result.log_start_offset
            if partition.acks_wait:
                self._rest.expect_flush(partition.flusher, answer)
            if partition.leadership is not None and self._rest.acks < 0:
                self._rest.expect_commit(partition.leadership, result.last_offset + 1, answer)
        self._rest.one_less()


def finished(
    context: Context, acks: int, topics: list[TopicProduceResponse], failed: bool
) -> ProduceResponse | None:
    """The response, or None for a client that wants none: it learns of errors by a closed connection."""
    if failed:
        context.broker.metrics.produce_errors += 1
    if acks == 0:
        if failed:
            context.connection.close()
        return None
    response = ProduceResponse(responses=topics)
    if failed:
        _add_leader_hints(context, response)
    return response


def _add_leader_hints(context: Context, response: ProduceResponse) -> None:
    answers = (
        (topic.name or TopicId(topic.topic_id), answer.index, answer)
        for topic in response.responses
        for answer in topic.partition_responses
    )
    response.node_endpoints = LeaderHints(context.broker.image).add(
        answers, context.listener.name, LeaderIdAndEpoch, NodeEndpoint
    )


def refuse(answer: PartitionProduceResponse, error: ApiError, partition: Partition) -> None:
    """Fill the answer to a batch that `partition` did not take."""
    _fill_error(answer, error)
    if error.code not in _WITHOUT_LOG_START and not isinstance(error, NotOneBatch):
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
