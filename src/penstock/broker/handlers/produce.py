"""Produce: check what the version promises, append, and answer when the acks allow it."""

from __future__ import annotations

from typing import Final

from penstock.broker.context import Context
from penstock.broker.flusher import Flusher
from penstock.broker.recompression import append_recompressed, needs_recompression
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    StorageError,
    UnsupportedCompressionType,
)
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.records.batch import COMPRESSION_MASK, HEADER_SIZE, MAGIC, read_offset_and_length
from penstock.records.codecs import Codec
from penstock.storage.log import Appended
from penstock.wire.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

__all__ = ["produce"]

#: the first version by topic id, and the first that may carry zstd
_BY_TOPIC_ID: Final = 13
_ZSTD_FROM: Final = 7
_VALID_ACKS: Final = (-1, 1, 0)
#: where a batch has its magic and the low byte of its attributes
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


def produce(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Deferred[ProduceResponse | None] | None:
    broker = context.broker
    version = context.version
    find = broker.partitions.find
    response = ProduceResponse()
    rest = _Rest(context, request.acks, response)
    for topic in request.topic_data:
        key = TopicId(topic.topic_id) if version >= _BY_TOPIC_ID else topic.name
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.append(answer)
            partition = find(key, data.index)
            if isinstance(partition, ErrorCode):
                answer.error_code = partition
                continue
            try:
                if request.acks not in _VALID_ACKS:
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
                batch = _checked_batch(data.records, version)
                if needs_recompression(partition, batch):
                    append_recompressed(broker.workers, partition, batch, rest.expect(answer))
                    continue
                appended = partition.append(batch)
            except ApiError as e:
                _fill_error(answer, e)
                continue
            broker.metrics.bytes_in += len(batch)
            broker.metrics.messages_in += appended.last_offset - appended.base_offset + 1
            _fill(answer, appended)
            if partition.flusher.acks_wait and request.acks:
                rest.expect_flush(partition.flusher, answer)
    return rest.deferred if rest.count else rest.finished()


class _Rest:
    """What a request still waits for before it can be answered."""

    __slots__ = ("_acks", "_context", "_flushes", "_response", "count", "deferred")

    def __init__(self, context: Context, acks: int, response: ProduceResponse) -> None:
        self._context = context
        self._acks = acks
        self._response = response
        self._flushes: dict[Flusher, list[PartitionProduceResponse]] | None = None
        self.count = 0
        self.deferred: Deferred[ProduceResponse | None] = Deferred()

    def expect(self, answer: PartitionProduceResponse) -> _Expected:
        self.count += 1
        return _Expected(self, answer)

    def expect_flush(self, flusher: Flusher, answer: PartitionProduceResponse) -> None:
        if self._flushes is None:
            self._flushes = {}
        answers = self._flushes.get(flusher)
        if answers is not None:
            answers.append(answer)
            return
        answers = self._flushes[flusher] = [answer]
        self.count += 1

        def flushed(error: StorageError | None) -> None:
            if error is not None:
                for answer in answers:
                    _fill_error(answer, error)
            self.one_less()

        flusher.when_flushed(flushed)

    def one_less(self) -> None:
        self.count -= 1
        if not self.count:
            self.deferred.resolve(self.finished())

    def finished(self) -> ProduceResponse | None:
        """The response, or None for a client that wants none: it learns of errors by a closed connection."""
        failed = any(a.error_code for topic in self._response.responses for a in topic.partition_responses)
        if failed:
            self._context.broker.metrics.produce_errors += 1
        if self._acks == 0:
            if failed:
                self._context.connection.close()
            return None
        return self._response


class _Expected:
    """Takes the result of an append that went through a worker."""

    __slots__ = ("_answer", "_rest")

    def __init__(self, rest: _Rest, answer: PartitionProduceResponse) -> None:
        self._rest = rest
        self._answer = answer

    def __call__(self, flusher: Flusher, result: Appended | ApiError) -> None:
        if isinstance(result, ApiError):
            _fill_error(self._answer, result)
        else:
            _fill(self._answer, result)
            if flusher.acks_wait:
                self._rest.expect_flush(flusher, self._answer)
        self._rest.one_less()


def _checked_batch(records: memoryview | None, version: int) -> memoryview:
    """The one batch that a partition's records must be (checks of its inside come with the append)."""
    if not records:
        raise InvalidRecord("A partition was sent without a record batch")
    if len(records) <= _MAGIC_AT or records[_MAGIC_AT] != MAGIC:
        raise InvalidRecord(
            "Only record batches of magic 2 are accepted; use a client of Kafka 0.11 or later"
        )
    if len(records) < HEADER_SIZE or read_offset_and_length(records)[1] != len(records):
        raise InvalidRecord("A partition must be sent exactly one whole record batch")
    if version < _ZSTD_FROM and records[_ATTRIBUTES_AT] & COMPRESSION_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    return records


def _fill(answer: PartitionProduceResponse, appended: Appended) -> None:
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.append_time_ms
    answer.log_start_offset = appended.log_start_offset


def _fill_error(answer: PartitionProduceResponse, error: ApiError) -> None:
    answer.error_code = error.code
    answer.error_message = str(error)
    answer.base_offset = -1
    if isinstance(error, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
