"""Produce: check what the version promises, append, and answer when the acks allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.broker.context import Context
from penstock.broker.deferred_appends import append_at_once, append_later
from penstock.broker.flusher import Flusher
from penstock.broker.metrics import Metrics
from penstock.broker.partition import Partition
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    StorageError,
    UnsupportedCompressionType,
)
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.records.batch import ATTRIBUTES_LOW, COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from penstock.records.codecs import Codec
from penstock.storage.log import Appended
from penstock.wire.apis.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.messages import response_skeleton

__all__ = ["produce"]

#: the first version by topic id, and the first that may carry zstd
_BY_TOPIC_ID: Final = 13
_ZSTD_FROM: Final = 7
_VALID_ACKS: Final = (-1, 1, 0)
#: a response that is encoded but for its base offset, and that
Acknowledgement: TypeAlias = tuple[Callable[[int, int], bytes], int]


def produce(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Acknowledgement | Deferred[ProduceResponse | None] | None:
    broker = context.broker
    version = context.version
    acks = request.acks
    if acks not in _VALID_ACKS:
        return _refuse_acks(request)
    find = broker.partitions.find
    metrics = broker.metrics
    topics: list[TopicProduceResponse] = []
    rest: _Rest | None = None
    failed = False
    one = acks and len(request.topic_data) == 1 == len(request.topic_data[0].partition_data)
    for topic in request.topic_data:
        key = TopicId(topic.topic_id) if version >= _BY_TOPIC_ID else topic.name
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            try:
                partition = find(key, data.index)
                if isinstance(partition, ErrorCode):
                    raise ApiError(partition)
                batch = _checked_batch(data.records, version, request.transactional_id)
                appended = append_at_once(partition, batch)
                if appended is None:
                    answer = PartitionProduceResponse(index=data.index)
                    rest = rest or _Rest(context, acks, topics)
                    append_later(
                        broker.workers, broker.server.pool, partition, batch, rest.expect(answer, len(batch))
                    )
                else:
                    metrics.bytes_in += len(batch)
                    metrics.messages_in += appended[1] - appended[0] + 1
                    # `partition.acks_wait`, without the call.
                    waits = acks and (partition.sync_due or partition.flusher.acks_wait)
                    if one and not waits and appended[2] < 0:
                        return _acknowledged(partition, version, topic, appended)
                    answer = _answer(data.index, appended)
                    if waits:
                        rest = rest or _Rest(context, acks, topics)
                        rest.expect_flush(partition.flusher, answer)
            except ApiError as e:
                failed = True
                answer = _refused(data.index, e)
            answers.append(answer)
        topics.append(_topic_answer(topic, answers))
    if rest is not None:
        return rest.deferred
    return _finished(context, acks, topics, failed)


def _acknowledged(
    partition: Partition, version: int, topic: TopicProduceData, appended: Appended
) -> Acknowledgement:
    """The answer to the usual request, one batch without an append time: only its offset is news."""
    log_start_offset = appended[3]
    known = partition.acknowledgements.get(version)
    if known is None or known[0] != log_start_offset:

        def message(base_offset: int) -> ProduceResponse:
            answer = _answer(partition.index, appended)
            answer.base_offset = base_offset
            return ProduceResponse(responses=[_topic_answer(topic, [answer])])

        known = log_start_offset, response_skeleton(PRODUCE, version, message)
        partition.acknowledgements[version] = known
    return known[1], appended[0]


def _refuse_acks(request: ProduceRequest) -> ProduceResponse:
    error = ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    return ProduceResponse(
        responses=[
            _topic_answer(topic, [_refused(data.index, error) for data in topic.partition_data])
            for topic in request.topic_data
        ]
    )


def _finished(
    context: Context, acks: int, topics: list[TopicProduceResponse], failed: bool
) -> ProduceResponse | None:
    """The response, or None for a client that wants none: it learns of errors by a closed connection."""
    if failed:
        context.broker.metrics.produce_errors += 1
    if acks == 0:
        if failed:
            context.connection.close()
        return None
    return ProduceResponse(responses=topics)


class _Rest:
    """What a request still waits for before it can be answered."""

    __slots__ = ("_acks", "_context", "_count", "_flushes", "_topics", "deferred")

    def __init__(self, context: Context, acks: int, topics: list[TopicProduceResponse]) -> None:
        self._context = context
        self._acks = acks
        self._topics = topics
        self._flushes: dict[Flusher, list[PartitionProduceResponse]] = {}
        self._count = 0
        self.deferred: Deferred[ProduceResponse | None] = Deferred()

    def expect(self, answer: PartitionProduceResponse, size: int) -> _Expected:
        self._count += 1
        return _Expected(self, self._context.broker.metrics, answer, size)

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

    def one_less(self) -> None:
        self._count -= 1
        if not self._count:
            failed = any(answer.error_code for topic in self._topics for answer in topic.partition_responses)
            self.deferred.resolve(_finished(self._context, self._acks, self._topics, failed))


class _Expected:
    """Takes the result of an append that went through a worker."""

    __slots__ = ("_answer", "_metrics", "_rest", "_size")

    def __init__(self, rest: _Rest, metrics: Metrics, answer: PartitionProduceResponse, size: int) -> None:
        self._rest = rest
        self._metrics = metrics
        self._answer = answer
        self._size = size

    def __call__(self, partition: Partition, result: Appended | ApiError) -> None:
        answer = self._answer
        if isinstance(result, ApiError):
            _fill_error(answer, result)
        else:
            self._metrics.bytes_in += self._size
            self._metrics.messages_in += result.last_offset - result.base_offset + 1
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.append_time_ms
            answer.log_start_offset = result.log_start_offset
            if partition.acks_wait:
                self._rest.expect_flush(partition.flusher, answer)
        self._rest.one_less()


def _checked_batch(records: memoryview | None, version: int, transactional_id: str | None) -> memoryview:
    """What a partition was sent, as far as the request has a say in it; the log checks the batch itself."""
    if records is None:
        raise InvalidRecord("A partition was sent without a record batch")
    # What is too short to be a batch the log refuses.
    attributes = records[ATTRIBUTES_LOW] if len(records) >= HEADER_SIZE else 0
    if attributes & TRANSACTIONAL_BIT:
        # Nobody could end the transaction, and readers of committed records would never get past it.
        if transactional_id is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise InvalidTxnState("This broker has no transactions yet")
    if version < _ZSTD_FROM and attributes & COMPRESSION_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    return records


def _topic_answer(topic: TopicProduceData, answers: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


def _refused(index: int, error: ApiError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index)
    _fill_error(answer, error)
    return answer


def _answer(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _fill_error(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code = error.code
    answer.error_message = str(error)
    answer.base_offset = -1
    if isinstance(error, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
