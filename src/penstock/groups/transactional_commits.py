"""TxnOffsetCommit: offsets that become visible when the producer's transaction commits (KIP-98, KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.coordination.outbox import EncodedRecord, TransactionalRecords
from penstock.groups.group import PartitionCheck
from penstock.groups.ledger import GroupLedger
from penstock.groups.offsets import Offsets
from penstock.groups.records import OffsetCommitKey, OffsetCommitValue, encode_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_TOPIC_ID
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import Record, build_batch
from penstock.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

__all__ = ["commit_transactional"]

_SIMPLE: Final = -1
#: more than a record costs beside its key and value: lengths, offset and timestamp
_RECORD_OVERHEAD: Final = 64


def commit_transactional(
    ledger: GroupLedger,
    offsets: Offsets,
    request: TxnOffsetCommitRequest,
    topic_ids: Mapping[str, bytes],
    guard: object,
    size_max: int,
) -> TxnOffsetCommitResponse:
    """Write pending offsets of existing partitions. `guard` is that of the transaction's verification.

    `size_max` limits the batch of the records: the log refuses a larger one together with all records that
    are appended in the same turn.
    """
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    _check(ledger, request, topic_ids)
    response = TxnOffsetCommitResponse()
    records: list[EncodedRecord] = []
    pending: list[tuple[OffsetCommitKey, OffsetCommitValue]] = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            code = ErrorCode.NONE
            if len(metadata) > ledger.env.settings.metadata_length_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                index = partition.partition_index
                key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=index)
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=ledger.now_ms,
                    topic_id=topic_ids.get(topic.name, NO_TOPIC_ID),
                )
                records.append(encode_record(key, value))
                pending.append((key, value))
            results.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
    if records:
        _check_size(records, size_max)
        for key, value in pending:
            offsets.write_pending(request.producer_id, key, value)
        ledger.outbox.records.append(
            TransactionalRecords(request.producer_id, request.producer_epoch, records, guard)
        )
    return response


def _check_size(records: list[EncodedRecord], size_max: int) -> None:
    """Raise the error with which a plain commit of a record that is too large is answered."""
    if (
        HEADER_SIZE + sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in records)
        <= size_max
    ):
        return
    size = len(build_batch([Record(i, 0, key, value) for i, (key, value) in enumerate(records)]))
    if size > size_max:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {size} bytes; max.message.bytes is {size_max}"
        )


def _check(ledger: GroupLedger, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, bytes]) -> None:
    """Check the member. A stale epoch of a consumer group is ILLEGAL_GENERATION: the API has no other."""
    group = ledger.groups.get(request.group_id)
    if group is None:
        if request.generation_id > _SIMPLE:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return
    try:
        check = group.check_transactional_commit(
            request.member_id, request.group_instance_id, request.generation_id
        )
        if check is not None:
            _check_partitions(check, request, topic_ids)
    except ApiError as e:
        if e.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, str(e)) from e
        raise


def _check_partitions(
    check: PartitionCheck, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, bytes]
) -> None:
    for topic in request.topics:
        topic_id = topic_ids.get(topic.name)
        if topic_id is None:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        for partition in topic.partitions:
            check(topic.name, topic_id, partition.partition_index)
