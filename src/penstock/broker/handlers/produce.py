"""Produce: check the batches, append them, and answer when the acks allow it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.produce.pending import (
    Acknowledgement,
    PendingProduce,
    ProduceEnvironment,
    fill_refusal,
    respond,
)
from penstock.broker.produce.restored import RestoredAppends
from penstock.broker.replica.deferred_appends import Result, append_at_once, append_later
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidTxnState,
    UnsupportedCompressionType,
)
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.records.batch import ATTRIBUTES_LOW, COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_BIT
from penstock.records.codecs import Codec
from penstock.security.acls import Operation
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Appended
from penstock.storage.validation import NotOneBatch
from penstock.wire.apis.produce import (
    PRODUCE,
    RESTORED_ACKS,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.messages import response_skeleton

__all__ = ["ProduceHandler"]

#: the first versions with topic ids, with zstd, and with the log start offset in responses
_BY_TOPIC_ID: Final = 13
_ZSTD_FROM: Final = 7
_LOG_START_FROM: Final = 5
_VALID_ACKS: Final = (-1, 1, 0)
#: producer id and epoch of a batch
_PRODUCER: Final = Struct(">qh")
_PRODUCER_POSITION: Final = 43
_SEVERAL_PRODUCERS: Final = "Transactional records contained more than one producer ID"


class ProduceHandler:
    """Answers Produce requests."""

    def __init__(self, environment: ProduceEnvironment, access: Access | None = None) -> None:
        """`access` is None if every client may write everything."""
        self._environment = environment
        self._access = access
        self._restored = RestoredAppends(environment.partitions.find, access)

    def __call__(
        self, context: Context, request: ProduceRequest
    ) -> ProduceResponse | Acknowledgement | Deferred[ProduceResponse | Acknowledgement | None] | None:
        """Append all batches.

        Longer than other functions because this is the hot path: the usual request takes few calls.
        """
        environment = self._environment
        version, acks, transactional_id = context.version, request.acks, request.transactional_id
        find: Callable[[str | TopicId, int], Slot] = environment.partitions.find
        if self._access is not None:
            find = self._access.finder(context, Operation.WRITE, find)
        if acks not in _VALID_ACKS:
            if acks == RESTORED_ACKS and request.restored is not None:
                return self._restored(context, request, request.restored)
            return _refuse_acks(find, version, request)
        topics: list[TopicProduceResponse] = []
        pending: PendingProduce | None = None
        failed = False
        is_one = (
            acks
            and version >= _LOG_START_FROM
            and len(request.topic_data) == 1 == len(request.topic_data[0].partition_data)
        )
        if transactional_id is not None and not is_one and _has_several_producers(find, version, request):
            return _refuse_producers(environment, context, request)
        for topic in request.topic_data:
            key = TopicId(topic.topic_id) if version >= _BY_TOPIC_ID else topic.name
            answers: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                partition = find(key, data.index)
                if isinstance(partition, ErrorCode):
                    failed = True
                    environment.partitions.refused(key, data.index)
                    answers.append(_refused(data.index, partition))
                    continue
                try:
                    batch = _checked_batch(data.records, version, transactional_id)
                    leadership = partition.leadership if acks < 0 else None
                    if leadership is not None:
                        leadership.check_enough_replicas()
                    if transactional_id is None:
                        appended = append_at_once(partition, batch)
                    else:
                        appended = self._append_transactional(partition, batch, version)
                    if appended is None:
                        answer = PartitionProduceResponse(index=data.index)
                        pending = pending or PendingProduce(environment, context, request, topics)
                        result = pending.expect_append(answer, len(batch))
                        self._append_later(context, partition, batch, request, result)
                    else:
                        stats = partition.stats
                        stats.bytes_in += len(batch)
                        stats.records_in += appended[1] - appended[0] + 1
                        waits = acks and partition.sync.acks_wait
                        acknowledgement = None
                        if is_one and appended[2] < 0:
                            acknowledgement = _acknowledged(partition, version, topic, appended)
                            if leadership is None and not waits:
                                return acknowledgement
                        answer = _answer(data.index, appended)
                        if waits or leadership is not None:
                            pending = pending or PendingProduce(
                                environment, context, request, topics, acknowledgement
                            )
                            if waits:
                                pending.expect_flush(partition.sync.flusher, answer)
                            if leadership is not None:
                                pending.expect_commit(leadership, appended[1] + 1, answer)
                except ApiError as e:
                    failed = True
                    answer = PartitionProduceResponse(index=data.index)
                    fill_refusal(answer, e, partition)
                answers.append(answer)
            topics.append(_topic_answer(topic, answers))
        if pending is not None:
            pending.failed |= failed
            pending.one_less()
            return pending.deferred
        return respond(environment, context, acks, topics, failed)

    def _append_transactional(self, partition: Partition, batch: memoryview, version: int) -> Appended | None:
        """Append a batch of a transactional producer; returns None if it has to wait, see `_append_later`."""
        if not _is_transactional(batch):
            return append_at_once(partition, batch)
        transactional = self._environment.transactional
        if transactional is None:
            # The transaction could not be ended, and consumers of committed records would never get past it.
            raise InvalidTxnState("This broker has no transaction coordinator")
        partition.check_client_append()
        guard = transactional.guard(partition, batch, version)
        if guard is None:
            return append_at_once(partition, batch)
        return append_at_once(partition, batch, guard) if guard is NO_VERIFICATION else None

    def _append_later(
        self,
        context: Context,
        partition: Partition,
        batch: memoryview,
        request: ProduceRequest,
        result: Result,
    ) -> None:
        """Append a copy of `batch` when its transaction is verified, or when a worker has prepared it."""
        environment, transactional = self._environment, self._environment.transactional
        transactional_id, guard = request.transactional_id, None
        version, client = context.version, context.connection
        if transactional_id is not None and transactional is not None and _is_transactional(batch):
            guard = transactional.guard(partition, batch, version)
            if guard is not None and guard is not NO_VERIFICATION:
                transactional.park(
                    partition, batch, guard, transactional_id, version, request.acks < 0, result, client
                )
                return
        append_later(environment.workers, environment.memory, partition, batch, result, client, guard)


def _acknowledged(
    partition: Partition, version: int, topic: TopicProduceData, appended: Appended
) -> Acknowledgement:
    """The response to one batch without an append time: only three numbers change from one to the next."""
    skeleton = partition.acknowledgements.get(version)
    if skeleton is None:

        def message(index: int, base_offset: int, log_start_offset: int) -> ProduceResponse:
            answer = PartitionProduceResponse(
                index=index, base_offset=base_offset, log_start_offset=log_start_offset
            )
            return ProduceResponse(responses=[_topic_answer(topic, [answer])])

        skeleton = partition.acknowledgements[version] = response_skeleton(PRODUCE, version, message)
    return skeleton, (partition.index, appended[0], appended[3])


def _refuse_acks(
    find: Callable[[str | TopicId, int], Slot], version: int, request: ProduceRequest
) -> ProduceResponse:
    """Refuse every partition for its acks, or because there is no such partition."""
    responses = []
    for topic in request.topic_data:
        key = TopicId(topic.topic_id) if version >= _BY_TOPIC_ID else topic.name
        answers = []
        for data in topic.partition_data:
            found = find(key, data.index)
            if isinstance(found, ErrorCode):
                answers.append(_refused(data.index, found))
            else:
                code = ErrorCode.INVALID_REQUIRED_ACKS
                answers.append(_refused(data.index, code, "acks must be -1, 0 or 1"))
        responses.append(_topic_answer(topic, answers))
    return ProduceResponse(responses=responses)


def _has_several_producers(
    find: Callable[[str | TopicId, int], Slot], version: int, request: ProduceRequest
) -> bool:
    """Returns true if transactional batches have different producer ids or epochs.

    Batches for partitions that are not here do not count.
    """
    batches: dict[tuple[int, int], list[tuple[str | TopicId, int]]] = {}
    for topic in request.topic_data:
        key = TopicId(topic.topic_id) if version >= _BY_TOPIC_ID else topic.name
        for data in topic.partition_data:
            if data.records is not None and _is_transactional(data.records):
                producer = _PRODUCER.unpack_from(data.records, _PRODUCER_POSITION)
                if producer[0] >= 0:
                    batches.setdefault(producer, []).append((key, data.index))
    if len(batches) <= 1:
        return False
    return sum(any(isinstance(find(*each), Partition) for each in sent) for sent in batches.values()) > 1


def _refuse_producers(
    environment: ProduceEnvironment, context: Context, request: ProduceRequest
) -> ProduceResponse | None:
    """Refuse every partition: a transaction has one producer."""
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    topics = [
        _topic_answer(
            topic, [_refused(data.index, code, _SEVERAL_PRODUCERS) for data in topic.partition_data]
        )
        for topic in request.topic_data
    ]
    return respond(environment, context, request.acks, topics, failed=True)


def _checked_batch(records: memoryview | None, version: int, transactional_id: str | None) -> memoryview:
    """Check a batch by the rules of its request; the log checks the batch itself."""
    if records is None:
        raise NotOneBatch("A partition was sent without a record batch")
    # The log refuses bytes that are too short for a batch.
    attributes = records[ATTRIBUTES_LOW] if len(records) >= HEADER_SIZE else 0
    if attributes & TRANSACTIONAL_BIT and transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if version < _ZSTD_FROM and attributes & COMPRESSION_MASK == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce version 7 or later")
    return records


def _is_transactional(batch: memoryview) -> bool:
    return len(batch) >= HEADER_SIZE and bool(batch[ATTRIBUTES_LOW] & TRANSACTIONAL_BIT)


def _topic_answer(topic: TopicProduceData, answers: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


def _refused(index: int, code: ErrorCode, message: str = "") -> PartitionProduceResponse:
    """The answer for a partition that is not here."""
    return PartitionProduceResponse(
        index=index, error_code=code, error_message=message or code.name, base_offset=-1
    )


def _answer(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
